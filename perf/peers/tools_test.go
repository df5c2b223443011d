package main

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/peers"
	"github.com/fabrictest/fabrictest/scenarios"
)

// recorded returns a program's output that was recorded in testdata.
func recorded(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile("testdata/" + name))(t))
}

func TestToolOutputsAreParsed(t *testing.T) {
	shortTrip, longStream := &measurement{Kind: pingpong, Bytes: 8}, &measurement{Kind: stream, Bytes: 64 << 10}
	for _, test := range []struct {
		file  string
		tool  *tool
		m     *measurement
		want  float64 // seconds per message
		wrong [2]string
	}{
		{"ucx_tag_lat.txt", &ucxTool, shortTrip, 5.556e-6, [2]string{"50.0_percentile_lat", "median"}},
		{"ucx_tag_bw.txt", &ucxTool, longStream, 1.0 / 888, [2]string{",888", ",0"}},
		{"fi_pingpong.txt", &libfabricTool, shortTrip, 8739.46e-6, [2]string{"usec/xfer", "ns/xfer"}},
		{"iperf3.json", &iperfTool, longStream, 65536 * 8 / 2947749216.3489327, [2]string{"sum_received", "sum"}},
	} {
		text := recorded(t, test.file)
		if got := must.Get(test.tool.parse(text, test.m))(t); math.Abs(got-test.want) > 1e-6*test.want {
			t.Errorf("%s: %v s a message, want %v", test.file, got, test.want)
		}
		for _, bad := range []string{"", strings.ReplaceAll(text, test.wrong[0], test.wrong[1])} {
			if got, err := test.tool.parse(bad, test.m); err == nil {
				t.Errorf("%s: got %v and no error from %q", test.file, got, bad)
			}
		}
	}
}

func TestListeningPortIsFound(t *testing.T) {
	table := recorded(t, "proc_net_tcp6.txt")
	if !listens(table, 5999) {
		t.Error("the server does not listen on port 5999")
	}
	if listens(table, 5998) {
		t.Error("a server listens on port 5998")
	}
	if listens(strings.ReplaceAll(table, " 0A ", " 01 "), 5999) {
		t.Error("a connected socket listens")
	}
}

func TestVersionsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"HYDRA build details:\n    Version:                                 4.0.2\n    Release Date:  Thu Apr  7 12:34:45 CDT 2022\n": "4.0.2",
		"mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n":                                 "4.1.4",
		"# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n":                                                              "1.13.1",
		"fi_info: 1.17.0\nlibfabric: 1.17.0\n":                                                                                        "1.17.0",
		"iperf 3.12 (cJSON 1.7.15)\n":                                                                                                 "3.12",
		"command not found":                                                                                                           "of unknown version",
	} {
		if got := versionIn(text); got != want {
			t.Errorf("%q: version %s, want %s", text, got, want)
		}
	}
}

func TestMissingPeersAreSkippedWithInstallCommand(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	all := append(pairMeasurements(), collectiveMeasurements(4, scenarios.VethPair)...)
	found, skipped, err := findPeers(nil, all)
	if err != nil || len(found) != 0 || len(skipped) != len(allPeers()) {
		t.Fatalf("found %v, skipped %v, error %v; want all peers skipped", found, skipped, err)
	}
	var b strings.Builder
	if err := (&peers.Run{Skipped: skipped}).WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, p := range allPeers() {
		if want := "install it with: apt-get install -y --no-install-recommends " + p.packages; !strings.Contains(b.String(), p.name+" is skipped: ") || !strings.Contains(b.String(), want) {
			t.Errorf("the output does not say how to install %s:\n%s", p.name, &b)
		}
	}
	if _, skipped, err = findPeers([]string{"ucx"}, all); err != nil || len(skipped) != 1 {
		t.Errorf("selected UCX: skipped %v, error %v", skipped, err)
	}
	if _, _, err := findPeers([]string{"ucx", "gasnet"}, all); err == nil {
		t.Error("no error for an unknown peer")
	}
	if _, _, err := findPeers([]string{"ucx"}, collectiveMeasurements(4, scenarios.VethPair)); err == nil {
		t.Error("no error for a peer without collective operations")
	}
}
