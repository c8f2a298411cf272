import edu.tsinghua.dbgroup.EditDistanceJoiner;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Measures Pass-Join in Java, by EditDistanceJoiner on one thread, in CPU seconds of the process:
 * FILE K RUNS ENOUGH, as in strings.py.
 */
class PassJoin {
    static double seconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    public static void main(String[] given) throws Exception {
        List<String> texts = Files.readAllLines(Path.of(given[0]));
        int k = Integer.parseInt(given[1]);
        int most = Integer.parseInt(given[2]);
        double enough = Double.parseDouble(given[3]);
        List<String> runs = new ArrayList<>();
        int pairs = 0;
        for (double spent = 0; runs.size() < most && spent < enough; ) {
            double began = seconds();
            var joiner = new EditDistanceJoiner(k, 0);
            joiner.populate(texts);
            pairs = joiner.getJoinResults().size();
            double took = seconds() - began;
            runs.add(String.format("%.4f", took));
            spent += took;
        }
        System.out.println("{\"version\": \"5e8b9b8\", \"runs\": " + runs + ", \"pairs\": " + pairs + "}");
    }
}
