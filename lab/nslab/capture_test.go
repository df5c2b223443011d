package nslab

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// captured has the contents of a capture file.
type captured struct {
	section pcapgo.NgSectionInfo
	packets int
	longest int
	output  map[string]int // comments on packets, by interface and text
}

func readCapture(t *testing.T, name string) (c captured) {
	t.Helper()
	f := must.Get(os.Open(name))(t)
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(name, pcaplink.CompressedSuffix) {
		in = must.Get(gzip.NewReader(f))(t)
	}
	r, err := pcapgo.NewNgReader(in, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c.section, c.output = r.SectionInfo(), make(map[string]int)
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			t.Fatalf("%s, after %d packets: %v", name, c.packets, err)
		}
		c.packets++
		c.longest = max(c.longest, len(data))
		intf := must.Get(r.Interface(ci.InterfaceIndex))(t)
		for _, comment := range opts.Comments {
			c.output[intf.Name+": "+comment]++
		}
	}
}

func captures(r *report.Result) (names []string) {
	for _, f := range r.Files {
		if f.Kind == "capture" {
			names = append(names, filepath.Base(f.Path))
		}
	}
	return names
}

func TestCaptureOfKilledRankIsTrimmed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := run(t, `
fabric: {kind: pair}
faults: [{at: 500ms, do: kill, on: [host1]}]
workload: {kind: stream, op: send, messages: 2000, bytes: 4KiB, think: 1ms, timeout: 60ms}
expect: {delivered: at-most-once, killed: [host1], errors: {host0: [retry exceeded]}}
`, lab.Options{Dir: dir, Capture: true})
	passed(t, r)
	if names := strings.Join(captures(r), " "); names != "host0.pcapng.gz host1.pcapng.gz" { // nothing passes through user space
		t.Fatalf("captures %s", names)
	}
	for _, f := range r.Files {
		if f.Kind != "capture" {
			continue
		}
		if c := readCapture(t, filepath.Join(dir, f.Path)); c.packets < 50 {
			t.Errorf("%s: %d packets", f.Path, c.packets)
		}
	}
}

func TestFabricCaptureHasPacketComments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := run(t, `
fabric: {kind: star, hosts: 2}
impair: [{on: [host0], way: out, loss: 10%}]
workload: {kind: stream, op: send, messages: 300, bytes: 1KiB, timeout: 60ms}
`, lab.Options{Dir: dir, Capture: true, Replay: "fabrictest run test"})
	passed(t, r)
	if names := strings.Join(captures(r), " "); names != "fabric.pcapng.gz host0.pcapng.gz host1.pcapng.gz" {
		t.Fatalf("captures %s", names)
	}
	c := readCapture(t, filepath.Join(dir, "test-netns", fabricCapture+pcaplink.CompressedSuffix))
	lost := linkOf(t, r, "host0/rdma0", "switch0")
	if c.section.Comment != "fabrictest run test" || c.longest < 1024 {
		t.Errorf("%+v, %d bytes kept", c.section, c.longest)
	}
	if output := c.output["host0/rdma0 out: fabrictest: lost"]; lost.Lost["loss"] == 0 || uint64(output) != lost.Lost["loss"] || len(c.output) != 1 {
		t.Errorf("lost %v; the file says %v", lost.Lost, c.output)
	}
	if uint64(c.packets) < lost.Packets {
		t.Errorf("%d packets in the file, %d on the cable", c.packets, lost.Packets)
	}
}

func linkOf(t *testing.T, r *report.Result, from, to string) *report.Link {
	t.Helper()
	for i := range r.Links {
		if l := &r.Links[i]; l.From == from && l.To == to {
			return l
		}
	}
	t.Fatalf("no link from %s to %s: %+v", from, to, r.Links)
	return nil
}
