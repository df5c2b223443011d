package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// writeLatencies writes a folder with a file of ib_send_lat for each latency, in microseconds.
func writeLatencies(t *testing.T, latencies []float64) string {
	t.Helper()
	dir := t.TempDir()
	for i, l := range latencies {
		text := fmt.Sprintf("                    Send Latency Test\n #bytes #iterations    t_typical[usec]\n 8 1000 %.2f\n", l)
		must.Do(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("run%d.txt", i)), []byte(text), 0o666))
	}
	return dir
}

func TestPerfCompareFailsForSlowerRun(t *testing.T) {
	before := writeLatencies(t, []float64{1.79, 1.80, 1.78, 1.79, 1.81, 1.80, 1.79, 1.80, 1.78, 1.80})
	slower := writeLatencies(t, []float64{1.99, 2.00, 1.98, 1.99, 2.01, 2.00, 1.99, 2.00, 1.98, 2.00})
	code, out := runWithTimeout(t, "perf", "compare", before, slower)
	if code != 1 || !strings.Contains(out, "+11.1 %") || !strings.Contains(out, "1 comparison: 1 worse.") {
		t.Errorf("slower: exit code %d\n%s", code, out)
	}
	code, out = runWithTimeout(t, "perf", "compare", slower, before, "--json")
	if code != 0 || !strings.Contains(out, `"verdict": "better"`) {
		t.Errorf("faster: exit code %d\n%s", code, out)
	}
	code, out = runWithTimeout(t, "perf", "compare", before, slower, "--floor", "20")
	if code != 0 || !strings.Contains(out, "1 same") {
		t.Errorf("a floor of 20 %%: exit code %d\n%s", code, out)
	}
	one := filepath.Join(before, "run0.txt")
	code, out = runWithTimeout(t, "perf", "compare", one, slower)
	if code != 0 || !strings.Contains(out, "1 inconclusive") || !strings.Contains(out, "less than 5 samples") {
		t.Errorf("one sample: exit code %d\n%s", code, out)
	}
}

func TestPerfImportAndHistory(t *testing.T) {
	dir := writeLatencies(t, []float64{1.5, 1.6})
	code, out := runWithTimeout(t, "perf", "import", filepath.Join(dir, "run0.txt"), filepath.Join(dir, "run1.txt"))
	if code != 0 || !strings.Contains(out, `"name": "send_lat/bytes=8"`) || !strings.Contains(out, "0.0000016") {
		t.Errorf("import: exit code %d\n%s", code, out)
	}
	args := []string{"perf", "history"}
	for i := range 12 {
		latency := 1.5e-6
		if i >= 6 {
			latency = 1.8e-6
		}
		text := fmt.Sprintf(`{"version": 1, "started": "2026-01-%02dT00:00:00Z", "series": [{"name": "lat", "unit": "s", "samples": [%g]}]}`, i+1, latency)
		file := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		must.Do(t, os.WriteFile(file, []byte(text), 0o666))
		args = append(args, file)
	}
	code, out = runWithTimeout(t, args...)
	if code != 0 || !strings.Contains(out, "run 7, 2026-01-07 00:00") || !strings.Contains(out, "1 change in 12 runs") {
		t.Errorf("history: exit code %d\n%s", code, out)
	}
}
