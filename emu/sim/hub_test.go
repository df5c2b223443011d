package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var errGone = errors.New("it has ended")

func TestMessagesArriveInOrderAndTimeOut(t *testing.T) {
	w := New(Config{Seed: 1})
	h := NewHub(w, 3, errGone)
	a, b := h.Endpoint(0), h.Endpoint(1)
	must.Fail(t, "Recv outside of a program", must.Err(a.Recv(1, verbs.Forever)), verbs.ErrInvalid)
	must.Fail(t, "Send to a rank that is not there", a.Send(3, nil), verbs.ErrInvalid)
	w.Go("a", func(p *Proc) error {
		p.Sleep(time.Millisecond)
		msg := []byte("one")
		err := a.Send(1, msg)
		msg[0] = 'X' // Send has copied it
		return errors.Join(err, a.Send(1, []byte("two")))
	})
	w.Go("b", func(p *Proc) error {
		for _, d := range []time.Duration{0, 10 * time.Microsecond} {
			began := p.Now()
			if _, err := b.Recv(0, d); !errors.Is(err, verbs.ErrTimeout) || p.Now()-began != d {
				return fmt.Errorf("Recv(%v) = %v after %v", d, err, p.Now()-began)
			}
		}
		for _, want := range []string{"one", "two"} {
			if got, err := b.Recv(0, verbs.Forever); err != nil || string(got) != want {
				return fmt.Errorf("received %q, %v, want %q", got, err, want)
			}
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
}

// Messages of an ended rank are still delivered; then Recv returns the error gone.
func TestEndedRankReturnsErrGone(t *testing.T) {
	w := New(Config{Seed: 1})
	h := NewHub(w, 2, errGone)
	a, b := h.Endpoint(0), h.Endpoint(1)
	w.Go("a", func(p *Proc) error {
		defer h.End(0)
		p.Sleep(time.Millisecond)
		return a.Send(1, []byte("last"))
	})
	w.Go("b", func(p *Proc) error {
		p.Sleep(2 * time.Millisecond)
		if got, err := b.Recv(0, verbs.Forever); err != nil || string(got) != "last" {
			return fmt.Errorf("received %q, %v", got, err)
		}
		if _, err := b.Recv(0, verbs.Forever); !errors.Is(err, errGone) {
			return fmt.Errorf("Recv from an ended rank: %v", err)
		}
		if err := b.Send(0, nil); !errors.Is(err, errGone) {
			return fmt.Errorf("Send to an ended rank: %v", err)
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
}

// A barrier opens when the last rank enters it or ends.
func TestBarrierOpensWhenLastRankEntersOrEnds(t *testing.T) {
	const size = 4
	w := New(Config{Seed: 1})
	h := NewHub(w, size, errGone)
	var opened []time.Duration
	for rank := range size {
		c := h.Endpoint(rank)
		w.Go(fmt.Sprint(rank), func(p *Proc) error {
			defer h.End(rank)
			if rank == 0 {
				must.Fail(t, "a barrier of one rank", c.Barrier(time.Microsecond), verbs.ErrTimeout)
			}
			for round := range 3 {
				p.Sleep(time.Duration(rank+1) * time.Millisecond)
				if rank == size-1 && round == 2 {
					return nil
				}
				if err := c.Barrier(verbs.Forever); err != nil {
					return err
				}
				if rank == 0 {
					opened = append(opened, c.Now())
				}
			}
			return nil
		})
	}
	must.Do(t, w.RunPrograms())
	if got, want := fmt.Sprint(opened), "[4ms 8ms 12ms]"; got != want {
		t.Errorf("the barriers opened at %s, want %s", got, want)
	}
}

func TestPipeDeliversInOrderAndTimesOut(t *testing.T) {
	w := New(Config{Seed: 1})
	a, b := Pipe(w)
	if _, err := a.Recv(verbs.Forever); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("Recv outside of a program: %v", err)
	}
	w.Go("a", func(p *Proc) error {
		p.Sleep(time.Millisecond)
		return errors.Join(a.Send([]byte("one")), a.Send([]byte("two")))
	})
	w.Go("b", func(p *Proc) error {
		for _, d := range []time.Duration{0, 10 * time.Microsecond} {
			began := p.Now()
			if _, err := b.Recv(d); !errors.Is(err, verbs.ErrTimeout) || p.Now()-began != d {
				return fmt.Errorf("Recv(%v) = %v after %v", d, err, p.Now()-began)
			}
		}
		for _, want := range []string{"one", "two"} {
			if got, err := b.Recv(verbs.Forever); err != nil || string(got) != want {
				return fmt.Errorf("received %q, %v, want %q", got, err, want)
			}
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
}
