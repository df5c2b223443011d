package launch_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/launch"
)

// violations are protocol violations of a rank, after the handshake unless the name begins with
// "!".
var violations = map[string]struct {
	do   func(ch *os.File)
	want string // part of the launcher's error
}{
	"!garbage":         {func(ch *os.File) { _, _ = io.WriteString(ch, "GET / HTTP/1.1\r\nHost: fabric\r\n\r\n") }, "unexpected frame"},
	"!version":         {func(ch *os.File) { writeFrame(ch, control.Hello, 99, `{"pid":1}`) }, "the rank has version 99"},
	"!hello":           {func(ch *os.File) { writeFrame(ch, control.Hello, launch.Version, `{"pid":"me"}`) }, "hello"},
	"!early":           {func(ch *os.File) { writeFrame(ch, launch.Barrier, 1, "") }, "unexpected frame: kind 0x21"},
	"garbage":          {func(ch *os.File) { _, _ = ch.Write(make([]byte, 1<<10)) }, "unexpected frame: kind 0x00"},
	"unknown":          {func(ch *os.File) { writeFrame(ch, 200, 0, "?") }, "unexpected frame: kind 0xc8"},
	"launcher's frame": {func(ch *os.File) { writeFrame(ch, launch.BarrierDone, 1, "") }, "unexpected frame: barrier done"},
	"second hello":     {func(ch *os.File) { writeFrame(ch, control.Hello, launch.Version, "{}") }, "unexpected frame: hello"},
	"oversize": {func(ch *os.File) {
		_, _ = ch.Write([]byte{0xff, 0xff, 0xff, 0xff, byte(launch.Data), 0, 0, 0, 0, 0, 0, 0, 0})
	}, "the limit is"},
	"short":          {func(ch *os.File) { _, _ = ch.Write([]byte{0, 0, 0, 1, byte(launch.Data), 0, 0, 0, 0, 0, 0, 0, 0}) }, "shorter than a header"},
	"report":         {func(ch *os.File) { writeFrame(ch, launch.Report, 0, strings.Repeat("r", 2000)) }, "report of 2000 bytes, the limit is 1000"},
	"second report":  {func(ch *os.File) { writeFrame(ch, launch.Report, 0, ""); writeFrame(ch, launch.Report, 0, "") }, "a second report"},
	"sample":         {func(ch *os.File) { writeFrame(ch, launch.Sample, 0, "{") }, "not JSON"},
	"unknown rank":   {func(ch *os.File) { writeFrame(ch, launch.Data, 77, "hi") }, "rank 77 of 2"},
	"barrier":        {func(ch *os.File) { writeFrame(ch, launch.Barrier, 7, "") }, "entered barrier 7"},
	"reply":          {func(ch *os.File) { writeFrame(ch, control.Reply, 1<<40, "") }, "never made"},
	"pong":           {func(ch *os.File) { writeFrame(ch, control.Pong, 1<<40, "") }, "without a ping"},
	"proxy's frame":  {func(ch *os.File) { writeFrame(ch, control.Stdout, 0, "line") }, "unexpected frame: stdout"},
	"closed channel": {func(ch *os.File) { _ = ch.Close() }, "without Close"},
}

func writeFrame(ch *os.File, k control.Kind, num uint64, body string) {
	_, _ = ch.Write(control.Frame{Kind: k, Num: num, Body: []byte(body)}.Append(nil))
}

func runViolation() {
	name := os.Args[1]
	ch := os.NewFile(3, "control")
	if !strings.HasPrefix(name, "!") {
		var err error
		ch, err = launch.JoinRaw()
		check("hello", err)
	}
	violations[name].do(ch)
	time.Sleep(forever)
}

func protocolViolationFailsRank(t *testing.T) {
	for name, r := range violations {
		t.Run(name, func(t *testing.T) {
			outcomes, err := run(t, []launch.Spec{roleSpec(0, "sleep"), roleSpec(1, "violation", name)}, testOptions(func(o *launch.Options) {
				o.MaxReport = 1000
				if name == "closed channel" {
					o.HangTimeout = hangTimeout // the healthy rank must answer within it, too
				}
			}))
			wantStates(t, outcomes, launch.Stopped, launch.Failed)
			wantErrorContaining(t, err, "rank 1 (hostb) failed", r.want)
		})
	}
}

// runUnresponsive joins and then neither reads nor writes.
func runUnresponsive() {
	_, err := launch.JoinRaw()
	check("hello", err)
	time.Sleep(forever)
}

// runSender sends to rank 1 forever.
func runSender() {
	c := join()
	for {
		check("send", c.Send(1, make([]byte, 256<<10)))
	}
}

// runLauncher launches two ranks with children and waits to be killed.
func runLauncher() {
	signal.Ignore(syscall.SIGTERM)
	g, err := launch.Start(context.Background(), roleSpecs("children", "children"), launch.Options{
		OnEvent: func(e launch.Event) {
			if e.Kind == launch.Printed {
				fmt.Println(e.Text)
			}
		},
	})
	check("launch", err)
	_, err = g.Wait()
	fatal("wait", err)
}

// runStoppedLauncher is a launcher that the test stops for longer than its HangTimeout.
func runStoppedLauncher() {
	g, err := launch.Start(context.Background(), roleSpecs("brief"), launch.Options{
		Heartbeat: 50 * time.Millisecond, JoinTimeout: time.Minute, HangTimeout: hangTimeout,
		OnEvent: func(e launch.Event) { fmt.Println(e.Kind) },
	})
	check("launch", err)
	_, err = g.Wait()
	check("wait", err)
}

func pidsIn(t *testing.T, text string) []int {
	t.Helper()
	var pids []int
	for _, f := range strings.Fields(text)[1:] {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("pids in %q: %v", text, err)
		}
		pids = append(pids, pid)
	}
	return pids
}
