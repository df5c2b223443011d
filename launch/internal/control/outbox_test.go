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

// pipe is a writer whose peer reads when it is told to.
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

func TestOutboxMakesSendersWaitAndKeepsOrder(t *testing.T) {
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
		// One batch is being written, another fills the queue: 2 frames of 50 each,
		// or 1 in a batch that was taken at once.
		if n := sent.Load(); n < 2 || n > 4 {
			t.Errorf("%d frames were taken while nobody reads", n)
		}
		if err := o.PutUnbounded(Frame{Kind: Ping, Num: 99}); err != nil {
			t.Errorf("Force: %v", err)
		}
		p.read(1 << 20)
		if err := <-ended; err != nil || sent.Load() != 20 {
			t.Fatalf("Run = %v after %d frames", err, sent.Load())
		}
		next := uint64(0)
		for {
			f, err := Read(&p.got, generous)
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
			t.Errorf("Put after the end = %v", err)
		}
	})
}

func TestOutboxGivesUpOnAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, p := NewSendQueue(100), &pipe{}
		asked := 0
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			ended <- o.Run(p, time.Second, func() bool { asked++; return asked < 3 })
		}()
		big := Frame{Kind: Data, Body: make([]byte, 1000)} // larger than the queue, passes alone
		if err := o.Put(big); err != nil {
			t.Fatal(err)
		}
		waiter := make(chan error, 1)
		go func() {
			_ = o.Put(big)
			waiter <- o.Put(big) // waits until Run gives up
		}()
		time.Sleep(500 * time.Millisecond)
		p.read(1) // the smallest progress begins patience anew
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || asked != 3 {
			t.Fatalf("Run = %v, asked %d times", err, asked)
		}
		if d := time.Since(began).Round(100 * time.Millisecond); d != 4*time.Second {
			t.Errorf("gave up after %v, want 1 s with progress and 3 s without", d)
		}
		if err := <-waiter; !errors.Is(err, ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
	})
}

func TestHelloAndAnswer(t *testing.T) {
	terms := WelcomeBody{Rank: 1, Size: 3, Host: "host1", MaxMessage: 10, MaxReport: 20}
	frames, err := WelcomeFrames(terms, []byte("job"))
	if err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	for _, f := range frames {
		back.Write(f.Append(nil))
	}
	var said bytes.Buffer
	got, job, err := Handshake(both{&back, &said}, HelloBody{PID: 7, Go: "go1"})
	if err != nil || got != terms || string(job) != "job" {
		t.Errorf("SayHello = %+v, %q, %v", got, job, err)
	}
	if g, err := ReadHello(&said); err != nil || g.PID != 7 || g.Go != "go1" {
		t.Errorf("HearHello = %+v, %v", g, err)
	}
	if _, err := WelcomeFrames(WelcomeBody{Host: strings.Repeat("h", MaxHello)}, nil); err == nil {
		t.Error("a host's name without end is let through")
	}
}

// both reads from one and writes to another.
type both struct {
	io.Reader
	io.Writer
}

func TestWelcomeIsChecked(t *testing.T) {
	welcome := func(body string) []byte { return Frame{Kind: Welcome, Body: []byte(body)}.Append(nil) }
	for name, b := range map[string][]byte{
		"refused":   Frame{Kind: Reject, Body: []byte("go away")}.Append(nil),
		"not json":  welcome("?"),
		"two":       welcome(`{"size":1}{"size":2}`),
		"unknown":   welcome(`{"size":1,"colour":"red"}`),
		"no ranks":  welcome(`{"size":0}`),
		"beyond":    welcome(`{"rank":2,"size":2}`),
		"negative":  welcome(`{"size":1,"max_report":-1}`),
		"no job":    welcome(`{"size":1}`),
		"otherwise": Frame{Kind: Ping}.Append(nil),
	} {
		if _, _, err := Handshake(both{bytes.NewReader(b), io.Discard}, HelloBody{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
