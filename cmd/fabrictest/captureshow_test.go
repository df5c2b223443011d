package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/must"
)

const (
	roceCaptures  = "../../emu/softroce/wire/testdata/"
	iwarpCaptures = "../../emu/iwarp/wire/testdata/"
	captureGolden = "../../capture/testdata/golden"
)

// captureShow runs the command and returns its output.
func captureShow(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), "fabrictest", append([]string{"capture", "show"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestCaptureShowIsGolden(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"roce-connect", []string{roceCaptures + "rxe_cm_rping.pcap"}},
		{"roce-datagrams", []string{"--delta", roceCaptures + "rxe_cm_udaddy.pcap"}},
		{"roce-golden", []string{roceCaptures + "golden.pcap"}},
		{"roce-problems", []string{"--problems", "--stats", roceCaptures + "rxe612_e1.pcap"}},
		{"roce-verbose", []string{"-v", "-n", "6", roceCaptures + "rxe_cm_rping.pcap"}},
		{"roce-bytes", []string{"-x", "-n", "2", roceCaptures + "rxe_rc_send_64.pcap"}},
		{"roce-json", []string{"--json", "-v", "-n", "5", roceCaptures + "rxe_cm_rping.pcap"}},
		{"roce-oob", []string{"-n", "20", roceCaptures + "rxe_rc_send_oob.pcap"}},
		{"iwarp-rping", []string{"--stats", iwarpCaptures + "siwcrc_rping_4000.pcap"}},
		{"iwarp-verbose", []string{"-v", "--op", "*read*", "-n", "3", iwarpCaptures + "siw_rping_100.pcap"}},
		{"iwarp-json", []string{"--json", "--op", "mpa*", iwarpCaptures + "siw_rping_100.pcap"}},
		{"two-files", []string{"--op", "cm*", roceCaptures + "rxe_cm_rping.pcap", roceCaptures + "rxe_cm_udaddy.pcap"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, got, errs := captureShow(t, tc.args...)
			if code != exitOK || errs != "" {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			path := filepath.Join(captureGolden, tc.name+".txt")
			if *update {
				must.Do(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (make it with -update)", err)
			}
			if got != string(want) {
				t.Errorf("output differs from %s (if it should: -update):\n%s", path, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return " got " + g[i] + "\nwant " + w[i]
		}
	}
	return "one is longer"
}

// shownPacket is a packet printed with --json, with the fields that the tests use.
type shownPacket struct {
	Number    int    `json:"number"`
	Direction string `json:"direction"`
	SrcName   string `json:"src_name"`
	DstName   string `json:"dst_name"`
	PDUs      []struct {
		Op    string `json:"op"`
		QP    uint32 `json:"qp"`
		PSN   uint32 `json:"psn"`
		Check string `json:"check"`
	} `json:"pdus"`
	Marks []struct{ Kind, Text string } `json:"marks"`
	Stats *struct {
		Packets int            `json:"packets"`
		Marks   map[string]int `json:"marks"`
	} `json:"stats"`
}

func captureShowJSON(t *testing.T, args ...string) (all []shownPacket) {
	t.Helper()
	code, out, errs := captureShow(t, append([]string{"--json"}, args...)...)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		var p shownPacket
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, p)
	}
	return all
}

// The capture of an interface shows as many retransmissions as its NIC counts. Repeated read
// responses are not retransmissions of a requester.
func TestCaptureShowMarksRetransmissionsThatNICsCount(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		clean    bool
	}{{"clean-rc", true}, {"exact-events", false}, {"slow-receiver", false}} {
		t.Run(tc.scenario, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			var out, errs bytes.Buffer
			if code := execute(t.Context(), "fabrictest", []string{"run", tc.scenario, "--on", "sim", "--out", dir, "--capture", "all"}, &out, &errs); code != exitOK {
				t.Fatalf("run: exit code %d: %s%s", code, &out, &errs)
			}
			file := filepath.Join(dir, tc.scenario+"-sim", "capture.pcapng.gz")
			retransmitted, marked, unnamed := 0, 0, 0
			for _, p := range captureShowJSON(t, file) {
				if p.SrcName == "" && p.DstName == "" {
					unnamed++
				}
				marked += len(p.Marks)
				for _, m := range p.Marks {
					if p.Direction == "out" && m.Kind == "retransmission" && !strings.HasPrefix(m.Text, "read response") {
						retransmitted++
					}
				}
				if tc.clean && p.PDUs[0].Check != "good" {
					t.Errorf("packet %d: ICRC %s", p.Number, p.PDUs[0].Check)
				}
			}
			if want := retransmissionsOf(t, filepath.Join(dir, "result.json")); retransmitted != want || tc.clean != (marked == 0) || unnamed > 0 {
				t.Errorf("%d retransmissions, the NICs count %d; %d marks; %d packets between unnamed hosts", retransmitted, want, marked, unnamed)
			}
		})
	}
}

// retransmissionsOf returns the sum of the retransmissions that the NICs of a run counted.
func retransmissionsOf(t *testing.T, path string) (n int) {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	var result struct {
		Scenarios []struct {
			Ranks []struct {
				Resent int `json:"resent"`
			} `json:"ranks"`
		} `json:"scenarios"`
	}
	must.Do(t, json.Unmarshal(b, &result))
	for _, s := range result.Scenarios {
		for _, r := range s.Ranks {
			n += r.Resent
		}
	}
	return n
}

func TestCaptureShowFiltersPackets(t *testing.T) {
	rping := roceCaptures + "rxe_cm_rping.pcap"
	for _, tc := range []struct {
		args []string
		want int
	}{
		{nil, 41},
		{[]string{"--op", "RC SEND*"}, 12},
		{[]string{"--op", "send_only"}, 12},
		{[]string{"--op", "rc_send_only", "--op", "CM REQ"}, 13},
		{[]string{"--op", "ack"}, 18},
		{[]string{"--op", "nak"}, 0},
		{[]string{"--qp", "31"}, 36},
		{[]string{"--qp", "0x1f", "--psn", "4968283-4968284"}, 4},
		{[]string{"--psn", "4968283,4968285"}, 4},
		{[]string{"--host", "10.77.0.12", "--op", "CM*"}, 5},
		{[]string{"--host", "10.0.0.0/8", "-n", "7"}, 7},
		{[]string{"--host", "nobody"}, 0},
		{[]string{"--problems"}, 0},
	} {
		if got := len(captureShowJSON(t, append(tc.args, rping)...)); got != tc.want {
			t.Errorf("%v: %d packets, want %d", tc.args, got, tc.want)
		}
	}
}

func TestCaptureShowReportsErrors(t *testing.T) {
	dir := t.TempDir()
	whole := must.Get(os.ReadFile(roceCaptures + "rxe_cm_rping.pcap"))(t)
	cut, text := filepath.Join(dir, "cut.pcap"), filepath.Join(dir, "text")
	must.Do(t, os.WriteFile(cut, whole[:1999], 0o600))
	must.Do(t, os.WriteFile(text, []byte("not a capture\n"), 0o600))
	good := roceCaptures + "rxe_cm_udaddy.pcap"
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stderr string
		lines  int
	}{
		{"damaged", []string{cut}, exitFailed, "damaged at byte 1810, after 11 packets: the file ends in the middle of a record", 11},
		{"damaged, then another", []string{cut, good}, exitFailed, "damaged at byte", 11 + 8 + 2},
		{"no capture", []string{text}, exitFailed, "neither pcap nor pcapng: it begins with 6e6f7420", 0},
		{"no file", []string{filepath.Join(dir, "none")}, exitFailed, "none: no such file or directory", 0},
		{"a folder", []string{dir}, exitFailed, "it is a folder, not a regular file", 0},
		{"nothing", nil, exitUsage, "name a capture to decode, or - for the standard input", 0},
		{"bad QP", []string{"--qp", "x", good}, exitUsage, `--qp: "x" is no number of 24 bits`, 0},
		{"bad PSN", []string{"--psn", "5-16777216", good}, exitUsage, `--psn: "16777216" is no number of 24 bits`, 0},
		{"bad pattern", []string{"--op", "[", good}, exitUsage, "--op: \"[\" is no pattern", 0},
		{"negative", []string{"-n", "-1", good}, exitUsage, "-n -1: a number of packets is not negative", 0},
	} {
		code, out, errs := captureShow(t, tc.args...)
		if code != tc.code || !strings.Contains(errs, tc.stderr) || strings.Count(out, "\n") != tc.lines {
			t.Errorf("%s: exit code %d, %d lines, %q; want %d, %d, %q", tc.name, code, strings.Count(out, "\n"), errs, tc.code, tc.lines, tc.stderr)
		}
	}
}

func TestCaptureShowReadsStandardInput(t *testing.T) {
	f := must.Get(os.Open(roceCaptures + "rxe_cm_udaddy.pcap"))(t)
	defer f.Close()
	cmd := newCaptureShowCommand()
	var out bytes.Buffer
	cmd.SetIn(f)
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"-"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || strings.Count(out.String(), "\n") != 8 {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestCaptureShowWritesNoEscapesToFile(t *testing.T) {
	_, out, _ := captureShow(t, "-v", roceCaptures+"rxe_cm_udaddy.pcap")
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences in a pipe")
	}
	if w, colour := capture.TerminalProperties(&bytes.Buffer{}); w != 0 || colour {
		t.Errorf("a buffer is a terminal of width %d", w)
	}
}
