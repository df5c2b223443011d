package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

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
