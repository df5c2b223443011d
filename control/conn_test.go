package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func allocated(t *testing.T) uint64 {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// pipe is a writer whose peer reads only as many bytes as read allows.
type pipe struct {
	mu       sync.Mutex
	got      bytes.Buffer
	window   int
	deadline time.Time
}

func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	return nil
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for {
		n := min(p.window, len(b))
		p.got.Write(b[:n])
		p.window -= n
		written += n
		if b = b[n:]; len(b) == 0 {
			return written, nil
		}
		if !p.deadline.IsZero() && !time.Now().Before(p.deadline) {
			return written, os.ErrDeadlineExceeded
		}
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
		p.mu.Lock()
	}
}

func (p *pipe) read(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window += n
}

// Read implements Stream. The peer sends nothing.
func (p *pipe) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements Stream.
func (p *pipe) Close() error { return nil }

// SetReadDeadline implements Stream.
func (p *pipe) SetReadDeadline(time.Time) error { return nil }

func TestQueueBlocksWhenFullAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{}
		c := New(p, Config{QueueBytes: 100})
		ended := make(chan error, 1)
		go func() { ended <- c.Run() }()
		var sent atomic.Int32
		go func() {
			for i := range 20 {
				if err := c.Queue(Frame{Kind: FirstProtocolKind, Num: uint64(i), Body: make([]byte, 37)}); err != nil {
					t.Error(err)
				}
				sent.Add(1)
			}
			c.CloseQueue()
		}()
		time.Sleep(time.Second)
		// One batch of 1 or 2 frames of 50 bytes is being written, another fills the
		// queue.
		if n := sent.Load(); n < 2 || n > 4 {
			t.Errorf("%d frames were queued while the peer does not read", n)
		}
		if err := c.QueueNow(Frame{Kind: Ping, Num: 99}); err != nil {
			t.Errorf("QueueNow: %v", err)
		}
		p.read(1 << 20)
		if err := <-ended; err != nil || sent.Load() != 20 {
			t.Fatalf("Run = %v after %d frames", err, sent.Load())
		}
		next := uint64(0)
		for {
			f, err := read(&p.got, wideLimits, nil)
			if err != nil {
				break
			}
			if f.Kind == FirstProtocolKind && f.Num != next {
				t.Fatalf("frame %d, want %d", f.Num, next)
			} else if f.Kind == FirstProtocolKind {
				next++
			}
		}
		if next != 20 {
			t.Errorf("%d frames arrived", next)
		}
		if err := c.Queue(Frame{Kind: Ping}); !errors.Is(err, ErrClosed) {
			t.Errorf("Queue after CloseQueue = %v", err)
		}
	})
}

func TestRunFailsIfPeerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{}
		calls := 0
		c := New(p, Config{QueueBytes: 100, WriteTimeout: time.Second, KeepWaiting: func() bool { calls++; return calls < 3 }})
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- c.Run() }()
		large := Frame{Kind: FirstProtocolKind, Body: make([]byte, 1000)} // larger than the queue: waits until it is empty
		must.Do(t, c.Queue(large))
		waiter := make(chan error, 1)
		go func() {
			_ = c.Queue(large)
			waiter <- c.Queue(large) // blocks until Run fails
		}()
		time.Sleep(500 * time.Millisecond)
		p.read(1) // any progress restarts the timeout
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || calls != 3 {
			t.Fatalf("Run = %v after %d calls of KeepWaiting", err, calls)
		}
		if d := time.Since(began).Round(100 * time.Millisecond); d != 4*time.Second {
			t.Errorf("failed after %v, want 1 s with progress and 3 s without", d)
		}
		if err := <-waiter; !errors.Is(err, ErrClosed) {
			t.Errorf("blocked Queue = %v, want ErrClosed", err)
		}
	})
}

func TestQueueNowClosesConnectionBeyondLimit(t *testing.T) {
	t.Parallel()
	c := New(&pipe{}, Config{MaxQueueBytes: 100})
	must.Do(t, c.QueueNow(Frame{Kind: FirstProtocolKind, Body: make([]byte, 50)}))
	if err := c.QueueNow(Frame{Kind: FirstProtocolKind, Body: make([]byte, 50)}); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("QueueNow = %v", err)
	}
	if err := c.Serve(nil); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("Serve = %v", err)
	}
}

// pair returns two ends of a connection.
func pair(local, remote Config) (*Conn, *Conn) {
	a, b := net.Pipe()
	return New(a, local), New(b, remote)
}

func TestIdleTimeoutAndHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := pair(Config{Heartbeat: time.Second}, Config{Heartbeat: time.Hour, IdleTimeout: 3 * time.Second, Limits: Limits{Ping: 0}})
		go func() {
			time.Sleep(time.Minute)
			local.CloseQueue() // ends the heartbeats
		}()
		go local.Run()
		began := time.Now()
		err := remote.Serve(func(f Frame) error { return fmt.Errorf("a frame of %v", f.Kind) })
		if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "no data from the other end for 3s") {
			t.Errorf("Serve = %v", err)
		}
		if d := time.Since(began); d < time.Minute || d > time.Minute+4*time.Second {
			t.Errorf("idle after %v", d)
		}
	})
}

func TestCloseSendsQueueAndReason(t *testing.T) {
	local, remote := pair(Config{}, Config{Limits: Limits{FirstProtocolKind: 10, Close: MaxReason}})
	got := make(chan error, 1)
	frames := 0
	go func() { got <- remote.Serve(func(Frame) error { frames++; return nil }) }()
	must.Do(t, local.QueueNow(Frame{Kind: FirstProtocolKind}))
	local.Close(errors.New("closed by the test"))
	local.Close(errors.New("again"))
	var reason *CloseError
	if err := <-got; !errors.As(err, &reason) || reason.Reason != "closed by the test" || frames != 1 {
		t.Errorf("Serve = %v after %d frames", err, frames)
	}
	if err := local.Serve(nil); err == nil || err.Error() != "closed by the test" {
		t.Errorf("Serve of the closed end = %v", err)
	}
}

// A connection that is closed while Run is writing sends the reason after Run's batch. It
// waits at most closeTimeout for a peer that does not read.
func TestCloseWaitsForRun(t *testing.T) {
	t.Parallel()
	for _, peerReads := range []bool{true, false} {
		local, remote := pair(Config{WriteTimeout: time.Minute, KeepWaiting: func() bool { return true }},
			Config{Limits: Limits{FirstProtocolKind: 10, Close: 10}})
		go local.Run()
		must.Do(t, local.QueueNow(Frame{Kind: FirstProtocolKind}))
		for local.writing.TryLock() { // until Run is writing
			local.writing.Unlock()
			runtime.Gosched()
		}
		closed := make(chan struct{})
		go func() { local.Close(errors.New("done")); close(closed) }()
		if peerReads {
			first, err := remote.Read()
			_, reason := remote.Read()
			if first.Kind != FirstProtocolKind || err != nil || reason.Error() != "done" {
				t.Errorf("read %v, %v and %v", first, err, reason)
			}
		}
		<-closed
	}
}

func TestReadHelloChecksVersionAndBody(t *testing.T) {
	type body struct{ Name string }
	p := Protocol{Version: 3, Us: "we", Them: "they", MaxHello: 100, Timeout: time.Minute}
	hello := func(version uint64, text string) []byte {
		return Frame{Kind: Hello, Num: version, Body: []byte(text)}.Append(nil)
	}
	for _, tt := range []struct {
		name string
		sent []byte
		want string // in the error; empty for none
	}{
		{"same version", hello(3, `{"Name":"x"}`), ""},
		{"older", hello(2, `{}`), "they has version 2, we has 3: update they"},
		{"newer", hello(4, `{"Colour":1}`), "they has version 4, we has 3: update we"},
		{"closed", Frame{Kind: Close, Body: []byte("shutdown")}.Append(nil), "shutdown"},
		{"not JSON", hello(3, "?"), "invalid hello"},
		{"two values", hello(3, `{}{}`), "more than one value"},
		{"unknown field", hello(3, `{"Colour":1}`), "unknown field"},
		{"too long", hello(3, strings.Repeat(" ", 101)), "the limit is 100"},
		{"another frame", Frame{Kind: Ping}.Append(nil), "unexpected frame: ping"},
		{"another protocol", []byte("GET / HTTP/1.1\r\n"), "unexpected frame"},
		{"no frame", nil, "EOF"},
	} {
		local, remote := net.Pipe()
		go func() {
			remote.Write(tt.sent)
			remote.Close()
		}()
		var got body
		err := New(local, Config{}).ReadHello(p, &got)
		if tt.want == "" && (err != nil || got.Name != "x") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %+v, %v, want %q", tt.name, got, err, tt.want)
		}
		local.Close()
	}
	local, remote := pair(Config{}, Config{})
	go local.SendHello(p, body{"sent"})
	var got body
	if err := remote.ReadHello(p, &got); err != nil || got.Name != "sent" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCallsPassRepliesByNumber(t *testing.T) {
	var c Calls
	var got []string
	begin := func(name string) uint64 {
		t.Helper()
		num := must.Get(c.Begin(3, func(body []byte, ok bool) { got = append(got, fmt.Sprint(name, " ", string(body), " ", ok)) }))(t)
		return num
	}
	a, b := begin("a"), begin("b")
	forgotten := begin("forgotten")
	if _, err := c.Begin(3, nil); !errors.Is(err, ErrTooManyCalls) {
		t.Errorf("a fourth call: %v", err)
	}
	c.Forget(forgotten)
	for _, num := range []uint64{b, a, a, forgotten} {
		if err := c.Reply(Frame{Kind: Reply, Num: num, Body: []byte("reply")}); err != nil {
			t.Errorf("reply to call %d: %v", num, err)
		}
	}
	for _, num := range []uint64{0, 99} {
		if err := c.Reply(Frame{Kind: Reply, Num: num}); !errors.Is(err, ErrProtocol) {
			t.Errorf("reply to call %d: %v", num, err)
		}
	}
	begin("pending")
	c.Close()
	if _, err := c.Begin(3, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	if want := []string{"b reply true", "a reply true", "pending  false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
