package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

var everyCapture = flag.Bool("captures", false, "have tshark read the captures of all scenarios and all cases")

// findTsharkOrSkip returns the path of tshark, and skips the test without it.
func findTsharkOrSkip(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not on PATH (apt install tshark): captures are read by fabrictest's own decoder only")
	}
	return program
}

// tshark reports problems only of packets that an impairment or a case made wrong.
func TestTsharkReportsNoProblemInCaptures(t *testing.T) {
	program := findTsharkOrSkip(t)
	some := []string{"clean-ud", "clean-ipv4", "iwarp-markers", "damage", "dgiwarp-ud-ipv4", "--messages", "20"}
	cases := []string{"pkt/udp/checksum-is-left-out", "rdmap/response/unasked-for-is-named", "--device", "softroce", "--device", "softiwarp"}
	if *everyCapture {
		some, cases = nil, nil
	}
	dir := t.TempDir()
	scenariosRun := []string{filepath.Join(dir, "sim")}
	run(t, append([]string{"run", "--on", "sim", "--out", scenariosRun[0]}, some...)...)
	if *everyCapture && netns.Available() == nil {
		scenariosRun = append(scenariosRun, filepath.Join(dir, "netns"))
		run(t, "run", "--on", "netns", "--out", scenariosRun[1])
	}
	run(t, append([]string{"conform", "--capture", "all", "--out", filepath.Join(dir, "cases")}, cases...)...)

	files, err := capture.Find(dir, nil)
	if err != nil || len(files) < 7 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	options := capture.TsharkOptions(t.Context(), program, files[0])
	next := make(chan string)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for file := range next {
				checkWithTshark(t, program, file, options)
			}
		})
	}
	for _, file := range files {
		next <- file
	}
	close(next)
	workers.Wait()
	t.Logf("%d captures", len(files))
}

// run calls the program, which must pass or fail; other exit codes end the test.
func run(t *testing.T, args ...string) {
	t.Helper()
	if code, out, errs := call(t, args...); code != exitOK && code != exitFailed {
		t.Fatalf("%s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
}

// checkWithTshark checks that tshark reports no problem of packets that are not excused.
func checkWithTshark(t *testing.T, program, file string, options []string) {
	t.Helper()
	excused, err := excusedPackets(file)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	problems, err := tsharkProblems(t.Context(), program, file, options...)
	if err != nil {
		t.Error(err)
	}
	// On the cables of a fabric the TCP of the kernel retransmits.
	fabric := strings.HasPrefix(filepath.Base(file), "fabric.")
	for _, c := range problems {
		retransmission := fabric && !strings.Contains(c.Text, "Malformed") && !strings.Contains(c.Text, "hecksum")
		if !excused[c.Packet] && !retransmission {
			t.Errorf("%s: %v", file, c)
		}
	}
}

// excusedPackets returns the packets of which tshark may report a problem: those that are wrong
// according to package capture, and those that tshark misparses. In the capture of a simulated
// scenario, exactly the packets that were damaged in transit are wrong.
func excusedPackets(file string) (map[int]bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := capture.Open(f)
	if err != nil {
		return nil, err
	}
	excused := make(map[int]bool)
	simulated := strings.HasSuffix(filepath.Dir(file), "-sim")
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			return excused, nil
		}
		if err != nil {
			return nil, err
		}
		wrong := p.Has(capture.MarkChecksum) || p.Has(capture.MarkMalformed)
		damaged := strings.Contains(strings.Join(p.Comments, " "), "as it arrived")
		if simulated && p.Protocol == "RoCEv2" && wrong != (damaged && !outsideICRC(p)) {
			return nil, fmt.Errorf("packet %d: wrong %v, damaged in transit %v: %v", p.Number, wrong, damaged, p.Marks)
		}
		// The kernel quotes a datagram with its partial checksum, which a NIC was to complete.
		quotes := strings.HasPrefix(p.Protocol, "ICMP")
		excused[p.Number] = wrong || damaged || quotes || slices.ContainsFunc(p.PDUs, tsharkMisparses)
	}
}

// outsideICRC reports whether a bit is set in byte 4 of the BTH, which the ICRC does
// not cover and the NICs leave 0.
func outsideICRC(p *capture.Packet) bool {
	bth := 8 + 40
	if p.Data[0]>>4 == 4 {
		bth = 8 + 20
	}
	return len(p.Data) > bth+4 && p.Data[bth+4] != 0
}

// tsharkMisparses reports whether d is an RDMAP Terminate with a tagged DDP header, which tshark
// parses as an untagged one.
func tsharkMisparses(d capture.PDU) bool {
	f, ok := d.(*capture.FPDU)
	if !ok || f.Segment.Control.Opcode != wire.OpTerminate {
		return false
	}
	return f.Segment.Terminate.HasDDP && f.Segment.Terminate.DDP.Control.Tagged
}

// The command prints the tshark command that it runs, and passes on arguments after "--".
func TestCaptureOpenPrintsPackets(t *testing.T) {
	findTsharkOrSkip(t)
	dir := filepath.Join(t.TempDir(), "out")
	run(t, "run", "clean-ipv4", "pingpong", "--on", "sim", "--messages", "5", "--out", dir)
	code, out, errs := call(t, "capture", "open", "--print", dir, "clean-ipv4", "--", "-c", "3")
	if code != exitOK || strings.Count(out, "RRoCE") != 3 {
		t.Errorf("exit code %d, packets\n%s%s", code, out, errs)
	}
	if want := "tshark -r " + filepath.Join(dir, "clean-ipv4-sim", "capture.pcapng.gz"); !strings.Contains(errs, want) || !strings.Contains(errs, " -c 3") {
		t.Errorf("%q is not printed:\n%s", want, errs)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{dir}, exitUsage, "2 captures: add words"},
		{[]string{dir, "nothing-like-it"}, exitFailed, "no capture in " + dir + " has nothing-like-it in its path; there are:"},
		{[]string{t.TempDir()}, exitFailed, "has no capture"},
	} {
		if code, _, errs := call(t, append([]string{"capture", "open", "--print"}, tc.args...)...); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: exit code %d: %s", tc.args, code, errs)
		}
	}
}

func TestCaptureOpenNamesMissingPackage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.pcapng")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	t.Setenv("PATH", t.TempDir())
	if code, _, errs := call(t, "capture", "open", file); code != exitFailed || !strings.Contains(errs, "apt install wireshark") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// expertInfo is a problem that tshark reports for a packet.
type expertInfo struct {
	Packet int // number in the file, from 1
	Info   string
	Text   string
}

func (c expertInfo) String() string {
	return fmt.Sprintf("packet %d, %s: %s", c.Packet, c.Info, c.Text)
}

// problemFilter is the display filter for malformed packets, expert info of severity
// error (such as a wrong checksum), and TCP analysis flags. It excludes warnings, such
// as a connection reset.
const problemFilter = "_ws.malformed || _ws.expert.severity >= 0x00800000 || tcp.analysis.flags"

// tsharkProblems runs tshark on a capture and returns the packets that match problemFilter.
func tsharkProblems(ctx context.Context, program, file string, options ...string) (all []expertInfo, err error) {
	args := append([]string{"-r", file, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"}, options...)
	args = append(args, "-Y", problemFilter, "-T", "fields", "-E", "separator=/t",
		"-e", "frame.number", "-e", "_ws.col.Info", "-e", "_ws.expert.message")
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tshark -r %s: %w\n%s", file, err, stderr.Bytes())
	}
	for line := range strings.Lines(string(out)) {
		cells := append(strings.SplitN(strings.TrimRight(line, "\n"), "\t", 3), "", "")
		n, err := strconv.Atoi(cells[0])
		if err != nil {
			return nil, fmt.Errorf("tshark -r %s: unexpected output %q", file, line)
		}
		all = append(all, expertInfo{Packet: n, Info: cells[1], Text: cells[2]})
	}
	return all, nil
}
