package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// readRanks reads the ranks.json of a folder.
func readRanks(t *testing.T, dir string) (run ranks.Run) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, ranks.ResultFile)))(t), &run))
	return run
}

func TestPerfMemoryWritesReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "memory")
	code, out := runWithTimeout(t, "perf", "memory", "--ranks", "16,4", "--only", "curves,thesis", "--workload", "star,cg", "--design", "sendrecv,ud", "--out", dir)
	if code != exitOK || !strings.Contains(out, "curves: mean of a rank             4        16\n") || !strings.Contains(out, "report: "+dir) {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	run := readRanks(t, dir)
	if len(run.Memory) != 2 || len(run.Memory[0].Points) != 8 || len(run.Memory[1].Points) != 4 || run.Machine.OS == "" || run.Wall == 0 {
		t.Fatalf("%+v", run)
	}
	if want := "fabrictest perf memory --ranks 4,16 --only curves --only thesis --design sendrecv --design ud --workload star --workload cg"; !strings.HasSuffix(run.Command, want) {
		t.Errorf("%s, want %s", run.Command, want)
	}
	for _, p := range run.Memory[0].Points {
		// 99 receives of 8 KiB per connection, and the memory that all designs need.
		least, most := 1.0e6, 1.5e6
		if p.Design == "sendrecv" {
			least, most = least+p.Connections.Mean*99*8192, most+p.Connections.Mean*99*8192
		}
		if p.Bytes.Mean < least || p.Bytes.Mean > most || p.Rank0Only != (p.Workload == "star") || p.Rank0Only && p.Design == "sendrecv" && p.Connections.Mean != float64(p.Ranks-1) {
			t.Errorf("%+v is not between %.0f and %.0f", p, least, most)
		}
	}
}

// The folder of --out has the statistics of the ranks, also if a rank failed.
func TestMPIRunWritesReport(t *testing.T) {
	dir := t.TempDir()
	ok, failed := filepath.Join(dir, "ok"), filepath.Join(dir, "failed")
	code, out := runWithTimeout(t, "mpirun", "-n", "4", "--on", "sim", "--design", "srq", "--loss", "1%", "--out", ok, "cg", "--class", "S")
	if code != exitOK || !strings.Contains(out, "report: "+filepath.Join(ok, ranks.PageFile)) || strings.Contains(out, "4 of 4 ranks") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	run := readRanks(t, ok)
	j := run.Job
	if j == nil || j.Program != "cg --class S" || j.Ranks != 4 || j.Tier != "sim" || j.LossPPM != 10000 || j.Protocol != "rget" || j.Progress != "polling" || len(j.Stats) != 4 {
		t.Fatalf("%+v", j)
	}
	if want := "fabrictest mpirun -n 4 --on sim --provider=softroce --loss=1% --design=srq cg --class S"; !strings.HasSuffix(run.Command, want) {
		t.Errorf("%s, want %s", run.Command, want)
	}
	for rank, s := range j.Stats {
		if s == nil || s.Count("P2P.Sent.0.Messages") == 0 || s.Count("Carrier.packets.0") == 0 || s.Count("Carrier.memory.max.2") == 0 {
			t.Errorf("rank %d: %+v", rank, s)
		}
	}
	writeRankProgram(t, "fails")
	code, out = runWithTimeout(t, "mpirun", "-n", "3", "--on", "sim", "--out", failed, "./my-ranks")
	if code != exitFailed || readRanks(t, failed).Job.Code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, _, stderr := call(t, "mpirun", "-n", "2", "--on", "sim", "--out", ok, "ring"); code != exitUsage || !strings.Contains(stderr, "is not empty") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestInteropVerbsListsExchanges(t *testing.T) {
	code, stdout, _ := call(t, strings.Fields("interop verbs send/*/hand/ipv6 --list --guest rxe")...)
	if code != exitOK || !strings.Contains(stdout, "send/theirs/hand/ipv6/4097\n") || strings.Contains(stdout, "ipv4") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}
