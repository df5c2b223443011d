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

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// rudeness is what a confused or hostile rank does with its channel. Each gets
// the channel after a proper hello, unless it begins with "!".
var rudeness = map[string]struct {
	do   func(ch *os.File)
	want string // what the launcher says of it
}{
	"!garbage": {func(ch *os.File) { _, _ = io.WriteString(ch, "GET / HTTP/1.1\r\nHost: fabric\r\n\r\n") }, "unexpected message"},
	"!version": {func(ch *os.File) { put(ch, control.Hello, 99, `{"pid":1}`) }, "speaks version 99"},
	"!hello":   {func(ch *os.File) { put(ch, control.Hello, control.Version, `{"pid":"me"}`) }, "hello"},
	"!early":   {func(ch *os.File) { put(ch, control.Barrier, 1, "") }, "unexpected message of barrier"},
	"garbage":  {func(ch *os.File) { _, _ = ch.Write(make([]byte, 1<<10)) }, "unexpected message of unknown kind 0x00"},
	"unknown":  {func(ch *os.File) { put(ch, 200, 0, "?") }, "unknown kind 0xc8"},
	"theirs":   {func(ch *os.File) { put(ch, control.BarrierDone, 1, "") }, "unexpected message of release"},
	"again":    {func(ch *os.File) { put(ch, control.Hello, control.Version, "{}") }, "unexpected message of hello"},
	"oversize": {func(ch *os.File) {
		_, _ = ch.Write([]byte{0xff, 0xff, 0xff, 0xff, byte(control.Data), 0, 0, 0, 0, 0, 0, 0, 0})
	}, "the limit is"},
	"short":    {func(ch *os.File) { _, _ = ch.Write([]byte{0, 0, 0, 1, byte(control.Data), 0, 0, 0, 0, 0, 0, 0, 0}) }, "shorter than a header"},
	"report":   {func(ch *os.File) { put(ch, control.Report, 0, strings.Repeat("r", 2000)) }, "report of 2000 bytes, the limit is 1000"},
	"twice":    {func(ch *os.File) { put(ch, control.Report, 0, ""); put(ch, control.Report, 0, "") }, "a second report"},
	"sample":   {func(ch *os.File) { put(ch, control.Sample, 0, "{") }, "not JSON"},
	"stranger": {func(ch *os.File) { put(ch, control.Data, 77, "hi") }, "rank 77 of 2"},
	"barrier":  {func(ch *os.File) { put(ch, control.Barrier, 7, "") }, "came to barrier 7"},
	"reply":    {func(ch *os.File) { put(ch, control.DumpReply, 1<<40, "") }, "never asked"},
	"pong":     {func(ch *os.File) { put(ch, control.Pong, 1<<40, "") }, "not asked for"},
	"hang up":  {func(ch *os.File) { _ = ch.Close() }, "without a word"},
}

func put(ch *os.File, k control.Kind, num uint64, body string) {
	_, _ = ch.Write(control.Frame{Kind: k, Num: num, Body: []byte(body)}.Append(nil))
}

func playRude() {
	ch := os.NewFile(3, "control")
	name := os.Args[1]
	if !strings.HasPrefix(name, "!") {
		_, _, err := control.Handshake(ch, control.HelloBody{PID: os.Getpid()})
		check("hello", err)
	}
	rudeness[name].do(ch)
	time.Sleep(forever)
}

func rankThatBreaksARuleHasFailed(t *testing.T) {
	for name, r := range rudeness {
		t.Run(name, func(t *testing.T) {
			outcomes, err := run(t, []launch.Spec{spec(0, "sleep"), spec(1, "rude", name)}, quick(func(o *launch.Options) {
				o.MaxReport = 1000
				if name == "hang up" {
					o.HangTimeout = patience // of which the other rank needs some, too
				}
			}))
			want(t, outcomes, launch.Stopped, launch.Failed)
			wantError(t, err, "rank 1 (hostb) failed", r.want)
		})
	}
}

// playDeaf joins, answers nothing and reads nothing.
func playDeaf() {
	ch := os.NewFile(3, "control")
	_, _, err := control.Handshake(ch, control.HelloBody{PID: os.Getpid()})
	check("hello", err)
	time.Sleep(forever)
}

// playTalk sends to rank 1 without end.
func playTalk() {
	c := join()
	for {
		check("send", c.Send(1, make([]byte, 256<<10)))
	}
}

// playParent is a launcher of its own: of two families, until it is killed.
func playParent() {
	signal.Ignore(syscall.SIGTERM)
	g, err := launch.Start(context.Background(), cast("family", "family"), launch.Options{
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

// playNap is a launcher that is stopped for longer than its patience.
func playNap() {
	g, err := launch.Start(context.Background(), cast("brief"), launch.Options{
		Heartbeat: 50 * time.Millisecond, JoinTimeout: time.Minute, HangTimeout: patience,
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
