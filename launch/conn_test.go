package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
)

// fakeLauncher is the launcher's side of a Conn.
type fakeLauncher struct {
	t      *testing.T
	file   *os.File
	frames *control.Conn
	lost   chan error
}

var testWelcome = welcome{Rank: 1, Size: 3, Host: "host1", MaxMessage: 1 << 20, MaxReport: 100, Job: []byte("job")}

// joinFake returns a Conn that has joined a fake launcher.
func joinFake(t *testing.T) (*Conn, *fakeLauncher) {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
				return
			}
		}
	})
	fds := must.Get(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))(t)
	must.Do(t, syscall.SetNonblock(fds[0], true))
	l := &fakeLauncher{t: t, file: os.NewFile(uintptr(fds[0]), "launcher"), lost: make(chan error, 1)}
	l.frames = control.New(l.file, control.Config{Limits: testWelcome.rankLimits()})
	t.Cleanup(func() { l.file.Close() })
	t.Setenv(envControl, fmt.Sprint(fds[1]))
	heard := make(chan error, 1)
	go func() {
		var h hello
		heard <- errors.Join(l.frames.ReadHello(launcherProtocol, &h), l.frames.SendHello(launcherProtocol, testWelcome))
	}()
	c := must.Get(JoinWith(func(err error) { l.lost <- err }))(t)
	must.Do(t, <-heard)
	return c, l
}

func (l *fakeLauncher) send(f control.Frame) {
	if err := l.frames.Write(f); err != nil {
		l.t.Errorf("send %v: %v", f.Kind, err)
	}
}

func (l *fakeLauncher) expect(k control.Kind) control.Frame {
	l.t.Helper()
	_ = l.file.SetReadDeadline(time.Now().Add(30 * time.Second))
	f, err := l.frames.Read()
	if err != nil || f.Kind != k {
		l.t.Fatalf("the rank sent %v (%v), want %v", f.Kind, err, k)
	}
	return f
}

// expectClose returns the reason of a Close frame.
func (l *fakeLauncher) expectClose() string {
	l.t.Helper()
	_ = l.file.SetReadDeadline(time.Now().Add(30 * time.Second))
	f, err := l.frames.Read()
	var bye *control.CloseError
	if !errors.As(err, &bye) {
		l.t.Fatalf("the rank sent %v (%v), want close", f.Kind, err)
	}
	return bye.Reason
}

// close closes c and acknowledges it.
func (l *fakeLauncher) close(c *Conn, reason error) string {
	l.t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(reason) }()
	text := l.expectClose()
	l.send(control.Frame{Kind: control.Close})
	must.Do(l.t, <-closed)
	return text
}

func TestJoinWithoutALauncher(t *testing.T) {
	if _, err := Join(); !errors.Is(err, ErrNotLaunched) {
		t.Errorf("Join = %v", err)
	}
	file := must.Get(os.Open(os.DevNull))(t)
	defer file.Close()
	for value, want := range map[string]string{
		"three": "not the number of a descriptor", "-1": "not the number", "9999": "no socket", fmt.Sprint(file.Fd()): "no socket",
	} {
		t.Setenv(envControl, value)
		if _, err := Join(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Join with %q = %v, want %q", value, err, want)
		}
	}
}

func TestConnAttributesAndUseAfterClose(t *testing.T) {
	c, l := joinFake(t)
	if c.Rank() != 1 || c.Size() != 3 || c.Host() != "host1" || string(c.Job()) != "job" {
		t.Errorf("%d of %d on %s: %s", c.Rank(), c.Size(), c.Host(), c.Job())
	}
	if _, err := Join(); !errors.Is(err, ErrNotLaunched) {
		t.Errorf("second Join = %v", err)
	}
	if text := l.close(c, errors.New("no memory")); text != "no memory" {
		t.Errorf("bye %q", text)
	}
	for what, err := range map[string]error{
		"send": c.Send(0, nil), "mark": c.Mark("x"), "sample": c.Sample(1), "report": c.Report(nil), "barrier": c.Barrier(-1),
	} {
		if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrDisconnected) {
			t.Errorf("%s after Close = %v", what, err)
		}
	}
	if _, err := c.Recv(0, -1); err == nil {
		t.Error("Recv after Close returns no error")
	}
	if err := c.Close(nil); err != nil {
		t.Errorf("second Close = %v", err)
	}
}

func TestRecvReturnsQueuedMessagesBeforeErrEnded(t *testing.T) {
	c, l := joinFake(t)
	for i := range 3 {
		l.send(control.Frame{Kind: kindData, Num: 2, Body: []byte{byte(i)}})
	}
	l.send(control.Frame{Kind: kindRankEnded, Num: 2})
	for i := range 3 {
		if msg, err := c.Recv(2, 30*time.Second); err != nil || len(msg) != 1 || msg[0] != byte(i) {
			t.Fatalf("Recv = %v, %v", msg, err)
		}
	}
	for _, timeout := range []time.Duration{30 * time.Second, 0, -1} { // the first blocks until the frame has arrived
		if _, err := c.Recv(2, timeout); !errors.Is(err, ErrEnded) || errors.Is(err, ErrTimeout) {
			t.Errorf("Recv(%v) = %v, want ErrEnded", timeout, err)
		}
	}
	if err := c.Send(2, nil); !errors.Is(err, ErrEnded) {
		t.Errorf("Send = %v", err)
	}
	if !c.HasEnded(2) || c.HasEnded(0) || c.HasEnded(-1) || c.HasEnded(3) {
		t.Errorf("HasEnded: 2 %v, 0 %v, -1 %v, 3 %v", c.HasEnded(2), c.HasEnded(0), c.HasEnded(-1), c.HasEnded(3))
	}
	if _, err := c.Recv(0, time.Millisecond); !errors.Is(err, ErrTimeout) {
		t.Errorf("Recv from a running rank = %v", err)
	}
	l.close(c, nil)
}

func TestConnEnforcesSizeLimits(t *testing.T) {
	c, l := joinFake(t)
	for what, err := range map[string]error{
		"message": c.Send(0, make([]byte, testWelcome.MaxMessage+1)), "report": c.Report(make([]byte, 101)),
		"sample": c.Sample(strings.Repeat("x", 100<<10)),
	} {
		if !errors.Is(err, ErrTooBig) {
			t.Errorf("%s = %v, want ErrTooBig", what, err)
		}
	}
	for what, err := range map[string]error{
		"rank 3": c.Send(3, nil), "rank -1": c.Send(-1, nil), "no JSON": c.Sample(func() {}),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := c.Recv(3, 0); err == nil || errors.Is(err, ErrTimeout) {
		t.Errorf("Recv from rank 3 of 3 = %v", err)
	}
	must.Do(t, c.Mark(strings.Repeat("m", 1<<20)))
	if f := l.expect(kindMark); len(f.Body) != maxMark || !strings.HasSuffix(string(f.Body), "cut") {
		t.Errorf("mark of %d bytes", len(f.Body))
	}
	must.Do(t, c.Report([]byte("r")))
	l.expect(kindReport)
	if err := c.Report([]byte("r")); err == nil {
		t.Error("a second report is accepted")
	}
	l.close(c, nil)
}

func TestBarrierAfterTimeoutContinuesSameBarrier(t *testing.T) {
	c, l := joinFake(t)
	for range 2 {
		if err := c.Barrier(time.Millisecond); !errors.Is(err, ErrTimeout) {
			t.Fatalf("Barrier = %v", err)
		}
	}
	if f := l.expect(kindBarrier); f.Num != 1 {
		t.Errorf("entered barrier %d", f.Num)
	}
	l.send(control.Frame{Kind: control.Ping, Num: 5})
	if f := l.expect(control.Pong); f.Num != 5 { // no second Barrier frame precedes it
		t.Errorf("pong %d", f.Num)
	}
	l.send(control.Frame{Kind: kindBarrierDone, Num: 1})
	for released := false; !released; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		released = c.barriers.released == 1
		c.mu.Unlock()
	}
	// The barrier that the calls before have entered, although it is released already.
	must.Do(t, c.Barrier(10*time.Second))
	l.close(c, nil)
}

func TestDumpListsBlockedCalls(t *testing.T) {
	c, l := joinFake(t)
	c.OnDump(func() string { return "two of three" })
	received := make(chan error, 1)
	go func() {
		_, err := c.Recv(2, -1)
		received <- err
	}()
	for c.describeWaits() == "" {
		time.Sleep(time.Millisecond)
	}
	l.send(control.Frame{Kind: kindDump, Num: 9})
	f := l.expect(control.Reply)
	if s := string(f.Body); f.Num != 9 || !strings.HasPrefix(s, "waits for a message from rank 2, for ") || !strings.HasSuffix(s, "\ntwo of three") {
		t.Errorf("dump %d: %q", f.Num, s)
	}
	l.send(control.Frame{Kind: kindData, Num: 2})
	must.Do(t, <-received)
	l.close(c, nil)
}

func TestDisconnectUnblocksAllCalls(t *testing.T) {
	tests := map[string]func(l *fakeLauncher){
		"closed":       func(l *fakeLauncher) { l.file.Close() },
		"garbage":      func(l *fakeLauncher) { _, _ = l.file.WriteString("HTTP/1.1 400 Bad Request\r\n") },
		"rejected":     func(l *fakeLauncher) { l.send(control.Frame{Kind: control.Close, Body: []byte("too many marks")}) },
		"invalid rank": func(l *fakeLauncher) { l.send(control.Frame{Kind: kindData, Num: 77}) },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			c, l := joinFake(t)
			errs := make(chan error, 2)
			go func() { _, err := c.Recv(0, -1); errs <- err }()
			go func() { errs <- c.Barrier(-1) }()
			l.expect(kindBarrier)
			end(l)
			for range 2 {
				if err := <-errs; !errors.Is(err, ErrDisconnected) {
					t.Errorf("%v, want ErrDisconnected", err)
				}
			}
			if err := <-l.lost; !errors.Is(err, ErrDisconnected) || name == "rejected" && !strings.Contains(err.Error(), "too many marks") {
				t.Errorf("OnDisconnect(%v)", err)
			}
			if err := c.Close(nil); err == nil {
				t.Error("Close returns no error")
			}
		})
	}
}

func TestConnectionFailsIfTooManyMessagesAreQueued(t *testing.T) {
	c, l := joinFake(t)
	written := make(chan struct{})
	go func() {
		defer close(written)
		msg := control.Frame{Kind: kindData, Num: 0, Body: make([]byte, 1<<20)}.Append(nil)
		for {
			if _, err := l.file.Write(msg); err != nil {
				return
			}
		}
	}()
	if err := <-l.lost; !strings.Contains(err.Error(), "does not receive them") {
		t.Errorf("OnDisconnect(%v)", err)
	}
	if _, err := c.Recv(0, -1); err != nil {
		t.Errorf("queued messages cannot be received: %v", err)
	}
	_ = c.Close(nil)
	<-written
}

func TestCloseLetsRunningCommandReplyFirst(t *testing.T) {
	c, l := joinFake(t)
	end := make(chan struct{})
	c.OnCommand(func(string) error {
		close(end)
		time.Sleep(20 * time.Millisecond)
		return errors.New("refused")
	})
	closed := make(chan error, 1)
	go func() {
		<-end
		closed <- c.Close(nil)
	}()
	l.send(control.Frame{Kind: kindCommand, Num: 4, Body: []byte("end")})
	if f := l.expect(control.Reply); f.Num != 4 || string(f.Body) != "refused" {
		t.Errorf("reply %d %q", f.Num, f.Body)
	}
	l.expectClose()
	l.send(control.Frame{Kind: control.Close})
	must.Do(t, <-closed)
}
