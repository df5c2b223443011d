package nslab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// stageCommand makes the test binary do something on a stage of its own, in an
// enclosure.
const stageCommand = "stage-process"

// acts are what can be done there, by name.
var acts = map[string]func(plan func(string) *lab.Plan, file string) error{
	"impair":  actImpair,
	"capture": actCapture,
}

// act runs one of them.
func act(t *testing.T, name, file string) {
	t.Helper()
	needNamespaces(t)
	cmd := exec.Command("/proc/self/exe", stageCommand, name, file)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := netns.StartUnshared(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
}

func onStage() error {
	return acts[os.Args[2]](func(text string) *lab.Plan {
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

// A cable may be in user space for the sake of one direction; both can be
// impaired.
func TestImpairWorksBothWaysOfACableInUserSpace(t *testing.T) {
	t.Parallel()
	act(t, "impair", "")
}

func actImpair(plan func(string) *lab.Plan, _ string) error {
	stage, err := OpenStage(plan("fabric: {kind: star, hosts: 3}\nimpair: [{on: [host0], way: out, loss: 1%}]\n"))
	if err != nil {
		return err
	}
	defer stage.Close()
	all := plan("fabric: {kind: star, hosts: 3}\nimpair: [{on: [host0], way: both, loss: 100%}]\n")
	if err := stage.Impair(all, "host0"); err == nil || !strings.Contains(err.Error(), "before the stage has begun") {
		return fmt.Errorf("before it has begun: %w", err)
	}
	if err := stage.Begin(time.Now()); err != nil {
		return err
	}
	if n, err := heard(stage, "host1", "host0", 20, 1); err != nil || n == 0 {
		return fmt.Errorf("%d of 20 datagrams came: %w", n, err)
	}
	if err := stage.Impair(all, "host0"); err != nil {
		return err
	}
	for _, way := range [][2]string{{"host1", "host0"}, {"host0", "host1"}} {
		if n, err := heard(stage, way[0], way[1], 20, 0); err != nil || n != 0 {
			return fmt.Errorf("from %s to %s all is lost, and %d datagrams came: %w", way[0], way[1], n, err)
		}
	}
	if err := stage.Impair(all, "host1"); err == nil || !strings.Contains(err.Error(), "the kernel carries this cable") {
		return fmt.Errorf("a cable of the kernel's: %w", err)
	}
	return nil
}

// A stage captures what passes, up to a size that is told once.
func TestStageCaptures(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "x.pcapng")
	act(t, "capture", name)
	c := readCapture(t, name)
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if c.packets < 20 || info.Size() > 16<<10 || c.section.Comment != "up" {
		t.Errorf("%d packets, %d bytes, %q", c.packets, info.Size(), c.section.Comment)
	}
}

func actCapture(plan func(string) *lab.Plan, file string) error {
	cuts := make(chan struct{}, 100)
	stage, err := Open(plan("fabric: {kind: star, hosts: 2}\n"), StageOptions{Spliced: true, Capture: CaptureOptions{
		File: file, MaxBytes: 16 << 10, Comment: "up", OnCut: func() { cuts <- struct{}{} },
	}})
	if err != nil {
		return err
	}
	err = stage.Begin(time.Now())
	n := 0
	if err == nil {
		n, err = heard(stage, "host0", "host1", 200, 100)
	}
	if err = errors.Join(err, stage.Close()); err == nil && (n < 100 || len(cuts) != 1) {
		err = fmt.Errorf("%d of 200 datagrams came, told %d times that the file is full", n, len(cuts))
	}
	return err
}

// heard sends datagrams from one host to another and returns how many came. So many are
// waited for, and for more than that a little.
func heard(stage *Stage, from, to string, send, want int) (n int, err error) {
	a, err := listen(stage, from)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	b, err := listen(stage, to)
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
			return n, nil // nothing more comes
		}
		if n++; n == send {
			return n, nil
		}
	}
}

func listen(stage *Stage, host string) (conn net.PacketConn, err error) {
	h := stage.Fabric.Host(host)
	addr := h.NICs[0].Addr(false)
	err = h.NS.Do(func() error {
		conn, err = net.ListenPacket("udp", net.JoinHostPort(addr.String(), "0"))
		return err
	})
	return conn, err
}
