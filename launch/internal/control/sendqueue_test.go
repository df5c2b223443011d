package control

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
	room     int
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
		n := min(p.room, len(b))
		p.got.Write(b[:n])
		p.room -= n
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
	p.room += n
}

func never() bool { return false }

func TestSendQueueBlocksWhenFullAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, p := NewSendQueue(100), &pipe{}
		ended := make(chan error, 1)
		go func() { ended <- o.Run(p, 0, never) }()
		var sent atomic.Int32
		go func() {
			for i := range 20 {
				if err := o.Put(Frame{Kind: Data, Num: uint64(i), Body: make([]byte, 37)}); err != nil {
					t.Error(err)
				}
				sent.Add(1)
			}
			o.Close()
		}()
		time.Sleep(time.Second)
		// One batch of 1 or 2 frames of 50 bytes is being written, another fills the
		// queue.
		if n := sent.Load(); n < 2 || n > 4 {
			t.Errorf("%d frames were queued while the peer does not read", n)
		}
		if err := o.PutUnbounded(Frame{Kind: Ping, Num: 99}); err != nil {
			t.Errorf("PutUnbounded: %v", err)
		}
		p.read(1 << 20)
		if err := <-ended; err != nil || sent.Load() != 20 {
			t.Fatalf("Run = %v after %d frames", err, sent.Load())
		}
		next := uint64(0)
		for {
			f, err := Read(&p.got, wideLimits)
			if err != nil {
				break
			}
			if f.Kind == Data && f.Num != next {
				t.Fatalf("frame %d, want %d", f.Num, next)
			} else if f.Kind == Data {
				next++
			}
		}
		if next != 20 {
			t.Errorf("%d frames arrived", next)
		}
		if err := o.Put(Frame{Kind: Ping}); !errors.Is(err, ErrClosed) {
			t.Errorf("Put after Close = %v", err)
		}
	})
}

func TestSendQueueFailsIfPeerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, p := NewSendQueue(100), &pipe{}
		asked := 0
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			ended <- o.Run(p, time.Second, func() bool { asked++; return asked < 3 })
		}()
		big := Frame{Kind: Data, Body: make([]byte, 1000)} // larger than the queue, so queued only when it is empty
		if err := o.Put(big); err != nil {
			t.Fatal(err)
		}
		waiter := make(chan error, 1)
		go func() {
			_ = o.Put(big)
			waiter <- o.Put(big) // blocks until Run fails
		}()
		time.Sleep(500 * time.Millisecond)
		p.read(1) // any progress restarts the timeout
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || asked != 3 {
			t.Fatalf("Run = %v, asked %d times", err, asked)
		}
		if d := time.Since(began).Round(100 * time.Millisecond); d != 4*time.Second {
			t.Errorf("failed after %v, want 1 s with progress and 3 s without", d)
		}
		if err := <-waiter; !errors.Is(err, ErrClosed) {
			t.Errorf("blocked Put = %v, want ErrClosed", err)
		}
	})
}

func TestHandshake(t *testing.T) {
	welcome := WelcomeBody{Rank: 1, Size: 3, Host: "host1", MaxMessage: 10, MaxReport: 20}
	frames, err := WelcomeFrames(welcome, []byte("job"))
	if err != nil {
		t.Fatal(err)
	}
	var toRank, fromRank bytes.Buffer
	for _, f := range frames {
		toRank.Write(f.Append(nil))
	}
	got, job, err := Handshake(readWriter{&toRank, &fromRank}, HelloBody{PID: 7, Go: "go1"})
	if err != nil || got != welcome || string(job) != "job" {
		t.Errorf("Handshake = %+v, %q, %v", got, job, err)
	}
	if h, err := ReadHello(&fromRank); err != nil || h.PID != 7 || h.Go != "go1" {
		t.Errorf("ReadHello = %+v, %v", h, err)
	}
	if _, err := WelcomeFrames(WelcomeBody{Host: strings.Repeat("h", MaxHello)}, nil); err == nil {
		t.Error("an oversized host name is accepted")
	}
}

type readWriter struct {
	io.Reader
	io.Writer
}

func TestHandshakeRejectsInvalidWelcome(t *testing.T) {
	welcome := func(body string) []byte { return Frame{Kind: Welcome, Body: []byte(body)}.Append(nil) }
	for name, b := range map[string][]byte{
		"rejected":       Frame{Kind: Reject, Body: []byte("go away")}.Append(nil),
		"not json":       welcome("?"),
		"two":            welcome(`{"size":1}{"size":2}`),
		"unknown":        welcome(`{"size":1,"colour":"red"}`),
		"no ranks":       welcome(`{"size":0}`),
		"rank too large": welcome(`{"rank":2,"size":2}`),
		"negative":       welcome(`{"size":1,"max_report":-1}`),
		"no job":         welcome(`{"size":1}`),
		"another frame":  Frame{Kind: Ping}.Append(nil),
	} {
		if _, _, err := Handshake(readWriter{bytes.NewReader(b), io.Discard}, HelloBody{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
