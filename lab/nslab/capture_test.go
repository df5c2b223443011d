package nslab

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// captured summarizes a capture file.
type captured struct {
	section  pcapgo.NgSectionInfo
	packets  int
	longest  int
	comments map[string]int // comments on packets, by interface and text
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
	c.section, c.comments = r.SectionInfo(), make(map[string]int)
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
			c.comments[intf.Name+": "+comment]++
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
`, lab.Options{Dir: dir, Capture: cli.CaptureAll})
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

func TestCapturesOfFailingScenariosAreKept(t *testing.T) {
	t.Parallel()
	for expect, want := range map[string]string{"{delivered: exactly-once}": "", "{lost: {min: 1}}": "fabric.pcapng.gz host0.pcapng.gz host1.pcapng.gz"} {
		dir := t.TempDir()
		r := run(t, `
fabric: {kind: star, hosts: 2}
impair: [{on: [host0], delay: 1ms}]
workload: {kind: stream, op: send, messages: 2, bytes: 1KiB}
expect: `+expect+"\n", lab.Options{Dir: dir, Capture: cli.CaptureFailing})
		left := must.Get(filepath.Glob(filepath.Join(dir, "test-netns", "*.pcapng*")))(t)
		if got := strings.Join(captures(r), " "); got != want || r.Verdict.Bad() != (want != "") || (len(left) > 0) != (want != "") {
			t.Errorf("%s: %s, captures %q, files %v", expect, r.Verdict, got, left)
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
`, lab.Options{Dir: dir, Capture: cli.CaptureAll, Replay: "fabrictest run test"})
	passed(t, r)
	if names := strings.Join(captures(r), " "); names != "fabric.pcapng.gz host0.pcapng.gz host1.pcapng.gz" {
		t.Fatalf("captures %s", names)
	}
	c := readCapture(t, filepath.Join(dir, "test-netns", fabricCapture+pcaplink.CompressedSuffix))
	lost := linkOf(t, r, "host0/rdma0", "switch0")
	if c.section.Comment != "fabrictest run test" || c.longest < 1024 {
		t.Errorf("%+v, %d bytes kept", c.section, c.longest)
	}
	if commented := c.comments["host0/rdma0 out: fabrictest: lost"]; lost.Lost["loss"] == 0 || uint64(commented) != lost.Lost["loss"] || len(c.comments) != 1 {
		t.Errorf("lost %v; the comments are %v", lost.Lost, c.comments)
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

// testbedCommand makes the test binary run a test body in new namespaces.
const testbedCommand = "testbed-process"

// testbedBodies are the test bodies by name.
var testbedBodies = map[string]func(plan func(string) *lab.Plan, file string) error{
	"drops":   dropsBody,
	"impair":  impairBody,
	"capture": captureBody,
}

// runInNamespaces runs a test body in a process with new namespaces.
func runInNamespaces(t *testing.T, name, file string) {
	t.Helper()
	needNamespaces(t)
	cmd := exec.Command("/proc/self/exe", testbedCommand, name, file)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	must.Do(t, netns.StartUnshared(cmd))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, output.String())
	}
}

func runTestbedBody() error {
	return testbedBodies[os.Args[2]](func(text string) *lab.Plan {
		s, err := scenarios.Parse("test.yaml", []byte("version: 1\nname: test\ntitle: A test\nworkload: {kind: all-to-all, messages: 10}\n"+text))
		if err == nil {
			var plan *lab.Plan
			if plan, err = lab.NewPlan(s, lab.Options{}); err == nil {
				return plan
			}
		}
		panic(err)
	}, os.Args[3])
}

// A cable is in user space because of one direction; both can be impaired.
func TestImpairAppliesToBothDirections(t *testing.T) {
	t.Parallel()
	runInNamespaces(t, "impair", "")
}

func impairBody(plan func(string) *lab.Plan, _ string) error {
	testbed, err := Open(plan("fabric: {kind: star, hosts: 3}\nimpair: [{on: [host0], way: out, loss: 1%}]\n"), TestbedOptions{})
	if err != nil {
		return err
	}
	defer testbed.Close()
	all := plan("fabric: {kind: star, hosts: 3}\nimpair: [{on: [host0], way: both, loss: 100%}]\n")
	if err := testbed.Impair(all, "host0"); err == nil || !strings.Contains(err.Error(), "before Begin") {
		return fmt.Errorf("Impair before Begin: %w", err)
	}
	if err := testbed.Begin(time.Now()); err != nil {
		return err
	}
	if n, err := countReceived(testbed, "host1", "host0", 20, 1); err != nil || n == 0 {
		return fmt.Errorf("%d of 20 datagrams arrived: %w", n, err)
	}
	if err := testbed.Impair(all, "host0"); err != nil {
		return err
	}
	for _, dir := range [][2]string{{"host1", "host0"}, {"host0", "host1"}} {
		if n, err := countReceived(testbed, dir[0], dir[1], 20, 0); err != nil || n != 0 {
			return fmt.Errorf("from %s to %s, with 100 %% loss, %d datagrams arrived: %w", dir[0], dir[1], n, err)
		}
	}
	if err := testbed.Impair(all, "host1"); err == nil || !strings.Contains(err.Error(), "the kernel carries this cable") {
		return fmt.Errorf("Impair of a cable in the kernel: %w", err)
	}
	return nil
}

// Drops before Begin are not drops of the run.
func TestDropsBeforeBeginAreNotCounted(t *testing.T) {
	t.Parallel()
	runInNamespaces(t, "drops", "")
}

func dropsBody(plan func(string) *lab.Plan, _ string) error {
	testbed, err := Open(plan("fabric: {kind: star, hosts: 2}\n"), TestbedOptions{UserSpace: true})
	if err != nil {
		return err
	}
	defer testbed.Close()
	w := testbed.network
	if err := w.setLink(0, false); err != nil {
		return err
	}
	if n, err := countReceived(testbed, "host0", "host1", 20, 0); err != nil || n != 0 {
		return fmt.Errorf("%d of 20 datagrams arrived while the link was down: %w", n, err)
	}
	if err := errors.Join(w.setLink(0, true), testbed.Begin(time.Now())); err != nil {
		return err
	}
	if n, err := countReceived(testbed, "host0", "host1", 20, 20); err != nil || n != 20 {
		return fmt.Errorf("%d of 20 datagrams arrived: %w", n, err)
	}
	o := lab.Observation{Plan: testbed.Plan}
	if err := errors.Join(w.close(), w.readCounters(&o)); err != nil {
		return err
	}
	sent := uint64(0)
	for _, l := range o.Links {
		sent = max(sent, l.Packets)
		if len(l.Lost) > 0 {
			return fmt.Errorf("link from %s to %s lost %v", l.From, l.To, l.Lost)
		}
	}
	if sent != 20 {
		return fmt.Errorf("%d packets were sent since Begin", sent)
	}
	return nil
}

func TestTestbedCaptureIsLimited(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "x.pcapng")
	runInNamespaces(t, "capture", name)
	c := readCapture(t, name)
	info := must.Get(os.Stat(name))(t)
	if c.packets < 20 || info.Size() > 16<<10 || c.section.Comment != "up" {
		t.Errorf("%d packets, %d bytes, %q", c.packets, info.Size(), c.section.Comment)
	}
}

func captureBody(plan func(string) *lab.Plan, file string) error {
	truncated := make(chan struct{}, 100)
	testbed, err := Open(plan("fabric: {kind: star, hosts: 2}\n"), TestbedOptions{UserSpace: true, Capture: CaptureOptions{
		File: file, MaxBytes: 16 << 10, Comment: "up", OnTruncated: func() { truncated <- struct{}{} },
	}})
	if err != nil {
		return err
	}
	err = testbed.Begin(time.Now())
	n := 0
	if err == nil {
		n, err = countReceived(testbed, "host0", "host1", 200, 100)
	}
	if err = errors.Join(err, testbed.Close()); err == nil && (n < 100 || len(truncated) != 1) {
		err = fmt.Errorf("%d of 200 datagrams arrived, OnTruncated was called %d times", n, len(truncated))
	}
	return err
}

// countReceived sends datagrams from one host to another and returns how many
// arrive. It waits long for the first want of them, and then briefly for more.
func countReceived(testbed *Testbed, from, to string, send, want int) (n int, err error) {
	a, err := listen(testbed, from)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	b, err := listen(testbed, to)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	for range send {
		if _, err := a.WriteTo(make([]byte, 500), b.LocalAddr()); err != nil {
			return 0, err
		}
	}
	buf := make([]byte, 2000)
	for {
		wait := 300 * time.Millisecond
		if n < want {
			wait = 30 * time.Second
		}
		if err := b.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		if _, _, err := b.ReadFrom(buf); err != nil {
			return n, nil // timeout
		}
		if n++; n == send {
			return n, nil
		}
	}
}

func listen(testbed *Testbed, host string) (conn net.PacketConn, err error) {
	h := testbed.Fabric.Host(host)
	addr := h.NICs[0].Addr(false)
	err = h.NS.Do(func() error {
		conn, err = net.ListenPacket("udp", net.JoinHostPort(addr.String(), "0"))
		return err
	})
	return conn, err
}
