package simlab

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	decode "github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// recorded runs a scenario, and returns the number of packets that hosts sent, and
// the packets, comments and CE marks in the capture.
func recorded(t *testing.T, text string) (r *report.Result, left uint64, sent int, comments map[string]int, marks map[decode.MarkKind]int) {
	t.Helper()
	dir := t.TempDir()
	r = Run(t.Context(), parse(t, text), lab.Options{Dir: dir, Capture: true})
	if r.Verdict != report.Passed || len(r.Files) != 1 {
		t.Fatalf("%s: %s", r.Verdict, r.Reason)
	}
	for i := range r.Links {
		if strings.HasPrefix(r.Links[i].From, "host") {
			left += r.Links[i].Packets
		}
	}
	f := must.Get(os.Open(filepath.Join(dir, r.Files[0].Path)))(t)
	defer f.Close()
	s := must.Get(decode.Open(f))(t)
	comments, marks = make(map[string]int), make(map[decode.MarkKind]int)
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			return r, left, sent, comments, marks
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Direction == decode.Outbound {
			sent++
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

// A packet that arrived changed is there a second time.
func TestCaptureHasEachPacketOnceWithComment(t *testing.T) {
	r, left, sent, comments, marks := recorded(t, `
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
	if lost == 0 || damaged == 0 || uint64(sent) != left {
		t.Errorf("%d packets left, %d lost, %d damaged; the capture has %d", left, lost, damaged, sent)
	}
	if uint64(comments["lost at host0/rdma0"]) != lost || uint64(comments["as it arrived"]) != damaged ||
		uint64(comments["changed on the way"]) != damaged || len(comments) != 3 || uint64(marks[decode.MarkChecksum]) != damaged {
		t.Errorf("%d lost, %d damaged; the capture says %v, and %d wrong ICRCs", lost, damaged, comments, marks[decode.MarkChecksum])
	}
}

func TestCaptureOfStreamsHasNoRetransmissions(t *testing.T) {
	_, left, sent, comments, marks := recorded(t, `
nic: {provider: softiwarp}
fabric: {kind: star, hosts: 2}
workload: {kind: stream, op: send, messages: 100, bytes: 4KiB}
`)
	if uint64(sent) != left || len(comments) > 0 || marks[decode.MarkRetransmission] > 0 || marks[decode.MarkMissingData] > 0 {
		t.Errorf("%d segments left; the capture has %d, %v, marks %v", left, sent, comments, marks)
	}
}
