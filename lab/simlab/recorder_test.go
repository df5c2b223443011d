package simlab

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	decode "github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// recorded runs a scenario, and returns the number of packets that hosts sent, and
// the packets, comments and CE marks in the capture.
func recorded(t *testing.T, text string) (r *report.Result, sent uint64, captured int, comments map[string]int, marks map[decode.MarkKind]int) {
	t.Helper()
	dir := t.TempDir()
	r = Run(t.Context(), parse(t, text), lab.Options{Dir: dir, Capture: cli.CaptureAll})
	if r.Verdict != report.Passed || len(r.Files) != 1 {
		t.Fatalf("%s: %s", r.Verdict, r.Reason)
	}
	for i := range r.Links {
		if strings.HasPrefix(r.Links[i].From, "host") {
			sent += r.Links[i].Packets
		}
	}
	f := must.Get(os.Open(filepath.Join(dir, r.Files[0].Path)))(t)
	defer f.Close()
	s := must.Get(decode.Open(f))(t)
	comments, marks = make(map[string]int), make(map[decode.MarkKind]int)
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			return r, sent, captured, comments, marks
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Direction == decode.Outbound {
			captured++
		}
		for _, c := range p.Comments {
			c, _, _ = strings.Cut(strings.TrimPrefix(c, "fabrictest: "), ",")
			comments[c]++
		}
		for _, m := range p.Marks {
			marks[m.Kind]++
		}
	}
}

// With CaptureFailing, a scenario that passes leaves no file and no folder.
func TestCapturesOfFailingScenariosAreKept(t *testing.T) {
	for expect, files := range map[string]int{"{delivered: exactly-once}": 0, "{lost: {min: 1}}": 1} {
		dir := t.TempDir()
		r := Run(t.Context(), parse(t, "fabric: {kind: pair}\nworkload: {kind: stream, op: send, messages: 2, bytes: 1KiB}\nexpect: "+expect+"\n"),
			lab.Options{Dir: dir, Capture: cli.CaptureFailing})
		folders := must.Get(os.ReadDir(dir))(t)
		if r.Verdict.Bad() != (files == 1) || len(r.Files) != files || len(folders) != files {
			t.Errorf("%s: %s, files %v, folders %v", expect, r.Verdict, r.Files, folders)
		}
	}
}

// A packet that was changed on the path has a second record, as it arrived.
func TestCaptureHasEachPacketOnceWithComment(t *testing.T) {
	r, sent, captured, comments, marks := recorded(t, `
fabric: {kind: star, hosts: 2}
impair: [{on: [host0], way: out, loss: 5%, corrupt: 3%}]
workload: {kind: stream, op: send, messages: 300, bytes: 1KiB, timeout: 5ms}
`)
	var lost, damaged uint64
	for i := range r.Links {
		if r.Links[i].From == "host0/rdma0" {
			lost, damaged = r.Links[i].Lost["loss"], r.Links[i].Corrupted
		}
	}
	if lost == 0 || damaged == 0 || uint64(captured) != sent {
		t.Errorf("%d packets sent, %d lost, %d damaged; the capture has %d", sent, lost, damaged, captured)
	}
	if uint64(comments["lost at host0/rdma0"]) != lost || uint64(comments["as it arrived"]) != damaged ||
		uint64(comments["changed on the path"]) != damaged || len(comments) != 3 || uint64(marks[decode.MarkChecksum]) != damaged {
		t.Errorf("%d lost, %d damaged; the capture says %v, and %d wrong ICRCs", lost, damaged, comments, marks[decode.MarkChecksum])
	}
}

func TestCaptureOfStreamsHasNoRetransmissions(t *testing.T) {
	_, sent, captured, comments, marks := recorded(t, `
nic: {provider: softiwarp}
fabric: {kind: star, hosts: 2}
workload: {kind: stream, op: send, messages: 100, bytes: 4KiB}
`)
	if uint64(captured) != sent || len(comments) > 0 || marks[decode.MarkRetransmission] > 0 || marks[decode.MarkMissingData] > 0 {
		t.Errorf("%d segments sent; the capture has %d, %v, marks %v", sent, captured, comments, marks)
	}
}

// Each expectation can fail alone in a run: by its bounds, or by a NIC with a defect.
func TestExpectationsFail(t *testing.T) {
	const (
		clean  = "fabric: {kind: pair}\nworkload: {kind: stream, messages: 100, bytes: 1KiB}\n"
		lossy  = "fabric: {kind: pair}\nimpair: [{loss: 2%}]\nworkload: {kind: stream, messages: 300, bytes: 4KiB, timeout: 1ms}\n"
		killed = "fabric: {kind: pair}\nfaults: [{at: 1ms, do: kill, on: [host1]}]\nworkload: {kind: pingpong, messages: 10000, think: 10us, timeout: 1ms, retries: 1}\n"
		broken = "fabric: {kind: pair}\nfaults: [{at: 1ms, do: qp-error, on: [host0]}]\nworkload: {kind: pingpong, messages: 300, think: 10us, timeout: 1ms, reconnect: true}\n"
	)
	for _, tc := range []struct {
		text    string
		defects []string
		failed  string // the failed checks, in order
		got     string // part of the result of the first
	}{
		{text: clean + "expect: {max_time: 1us}\n", failed: "max_time"},
		{text: clean + "expect: {retransmits: {min: 1}}\n", failed: "retransmits", got: "0"},
		{text: clean + "expect: {errors: {host0: [retry exceeded]}}\n", failed: "errors", got: `saw no "retry exceeded"`},
		{text: clean + "events: [{on: [host0], nth: 100000, do: drop}]\n", failed: "events", got: "events[0], drop of packet 100000, did not occur"},
		{text: clean + "events: [{on: [host0], nth: 3, do: truncate, bytes: 9000}]\n", failed: "events", got: "9000 bytes is not less than the payload"},
		{text: clean + "expect: {violations: {min: 1}}\n", failed: "violations", got: "none"},
		{text: lossy + "expect: {lost: {max: 0}}\n", failed: "lost"},
		{text: lossy + "expect: {retransmits: {max: 0}}\n", failed: "retransmits"},
		{text: lossy + "expect: {marked: {min: 1}}\n", failed: "marked", got: "0"},
		{text: killed + "expect: {killed: [host1], errors: {host0: [remote access]}}\n", failed: "errors", got: `saw no "remote access"`},
		{text: broken + "expect: {reconnects: {max: 0}}\n", failed: "reconnects", got: "2"},
		{text: broken + "expect: {recovery: 1us}\n", failed: "recovery", got: "after host0 queue pairs moved to Error at 1 ms"},
		// NICs with defects.
		{
			text:    "fabric: {kind: pair}\nimpair: [{loss: 5%}]\nworkload: {kind: random, services: [rc], messages: 1500, bytes: 8KiB, timeout: 30ms}\nexpect: {delivered: any}\n",
			defects: []string{"AckCompletesRead"}, failed: "memory violations", got: "want a value that the word had",
		},
		{
			text: "fabric: {kind: pair}\nworkload: {kind: random, services: [rc], messages: 400}\n", defects: []string{"WCDoubled"},
			failed: "delivered violations", got: "messages",
		},
	} {
		r := runText(t, tc.text, lab.Options{Defects: tc.defects})
		if got := strings.Join(failed(r), " "); got != tc.failed || r.Verdict != report.Failed {
			t.Errorf("%s%v: %s, %q failed, want %q: %s", tc.text, tc.defects, r.Verdict, got, tc.failed, r.Reason)
			continue
		}
		if name, _, _ := strings.Cut(tc.failed, " "); !strings.Contains(check(r, name).Got, tc.got) {
			t.Errorf("%s: got %q, want %q in it", tc.text, check(r, name).Got, tc.got)
		}
		if !strings.HasPrefix(r.Reason, strings.Fields(tc.failed)[0]+": ") {
			t.Errorf("%s: the reason is %q", tc.text, r.Reason)
		}
	}
}

func TestDefectsApplyToNamedHosts(t *testing.T) {
	const text = "fabric: {kind: pair}\nimpair: [{loss: 5%}]\nworkload: {kind: random, services: [rc], messages: 1500, bytes: 8KiB, timeout: 30ms}\n"
	runPassing(t, text)
	r := runText(t, text+"nic: {defects: [AckCompletesRead], on: [host1]}\n", lab.Options{})
	if got := failed(r); !slices.Contains(got, "violations") {
		t.Errorf("a defective NIC passed: %v", got)
	}
	r = runText(t, text+"nic: {defects: [NoSuchDefect]}\n", lab.Options{})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, "test.yaml:7:") || !strings.Contains(r.Reason, `no defect "NoSuchDefect"`) {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	r = runText(t, text, lab.Options{Defects: []string{"NoSuchDefect"}})
	if r.Verdict != report.Broken || !strings.Contains(r.Reason, `no defect "NoSuchDefect"`) {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// parse parses a scenario; it adds the first lines.
func parse(t testing.TB, text string) *scenarios.Scenario {
	t.Helper()
	text = "version: 1\nname: test\ntitle: A test\n" + text
	s, err := scenarios.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func runText(t testing.TB, text string, opts lab.Options) *report.Result {
	t.Helper()
	return Run(context.Background(), parse(t, text), opts)
}

// runPassing runs a scenario that must pass.
func runPassing(t testing.TB, text string) *report.Result {
	t.Helper()
	r := runText(t, text, lab.Options{})
	if r.Verdict != report.Passed {
		t.Errorf("%s: %s\n%s\n%s", r.Verdict, r.Reason, r.Detail, text)
		for _, c := range r.Checks {
			t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
		}
	}
	return r
}

func check(r *report.Result, name string) report.Check {
	i := slices.IndexFunc(r.Checks, func(c report.Check) bool { return c.Name == name })
	if i < 0 {
		return report.Check{}
	}
	return r.Checks[i]
}

func failed(r *report.Result) (names []string) {
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// cable returns the counters of one direction of a cable.
func cable(t testing.TB, r *report.Result, from, to string) report.Link {
	t.Helper()
	for _, l := range r.Links {
		if l.From == from && l.To == to {
			return l
		}
	}
	var names []string
	for _, l := range r.Links {
		names = append(names, l.From+">"+l.To)
	}
	t.Fatalf("no link from %s to %s, but %s", from, to, strings.Join(names, ", "))
	return report.Link{}
}
