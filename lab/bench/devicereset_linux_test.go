package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
)

// switchable is the host of a far device, with a switch and a console.
type switchable struct {
	h        *farHost
	t        *testing.T
	says     string // on its console
	signs    []error
	restarts int
	broken   bool // it does not come up again
}

func (s *switchable) Problem(sign error) error {
	s.signs = append(s.signs, sign)
	if said := s.says; said != "" {
		s.says = ""
		return errors.New(said)
	}
	if errors.Is(sign, agent.ErrLost) {
		return sign
	}
	return nil
}

func (s *switchable) Restart(ctx context.Context) (*agent.Client, error) {
	s.restarts++
	if s.broken {
		return nil, errors.New("no power")
	}
	if s.h.wedged != nil {
		close(s.h.wedged)
	}
	s.h.killed()
	s.h.serve(s.t)
	return s.h.dial(ctx)
}

// farSwitchable is a far device whose host is one.
func farSwitchable(t *testing.T) (*switchable, *Device) {
	t.Helper()
	h, d := farRoCE(t)
	s := &switchable{h: h, t: t}
	d.opt.Host = s
	return s, d
}

// The case has no verdict on the device, and the next one runs.
func TestCrashedHostIsRestarted(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(*switchable, *conformance.Bench) error
		want []string
	}{
		{"its agent is lost", func(s *switchable, b *conformance.Bench) error {
			s.h.killed()
			s.says = "Kernel panic\nRIP: somewhere"
			_, err := b.Device.QueryPort(1)
			return conformance.Violatedf("an answer", "%v", err)
		}, []string{"crashed during the case: Kernel panic\nRIP: somewhere"}},
		{"its agent is lost without a word", func(s *switchable, _ *conformance.Bench) error {
			s.h.killed()
			return nil
		}, []string{"crashed during the case", "lost"}},
		{"it lives on, and the case passes", func(s *switchable, _ *conformance.Bench) error {
			s.says = "BUG: scheduling while atomic"
			return nil
		}, []string{"crashed during the case: BUG: scheduling while atomic"}},
		{"it lives on, and the case fails", func(s *switchable, _ *conformance.Bench) error {
			s.says = "BUG: scheduling while atomic"
			return conformance.Violatedf("one", "another")
		}, []string{"got another; the device's host", "BUG: scheduling while atomic"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, d := farSwitchable(t)
			err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/crash"}, func(b *conformance.Bench) error { return c.body(s, b) })
			if err == nil || conformance.IsViolation(err) {
				t.Fatalf("the case: %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the case: %v, without %q", err, want)
				}
			}
			if s.restarts != 1 || s.h.restarts.Load() != 0 {
				t.Errorf("%d restarts of the host, and %d of the device", s.restarts, s.h.restarts.Load())
			}
			if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err != nil || s.restarts != 1 {
				t.Errorf("the case behind: %v, after %d restarts", err, s.restarts)
			}
		})
	}
}

func TestHostOfWedgedDeviceIsRestarted(t *testing.T) {
	s, d := farSwitchable(t)
	s.h.wedged, d.restartTimeout = make(chan struct{}), 20*time.Millisecond
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || s.restarts != 1 || d.Err() != nil {
		t.Fatalf("the case before: %v, %d restarts of the host, and then: %v", err, s.restarts, d.Err())
	}
	d.restartTimeout = defaultRestartTimeout
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || s.restarts != 1 {
		t.Errorf("the case behind: %v, and %d restarts of the host", err, s.restarts)
	}
}

func TestHungCaseChecksHost(t *testing.T) {
	s, d := farSwitchable(t)
	d.opt.MaxTime = 50 * time.Millisecond
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/hang"}, func(b *conformance.Bench) error {
		b.Runtime.Sleep(time.Hour)
		return nil
	})
	var hang *conformance.HangError
	if !errors.As(err, &hang) || s.restarts != 0 || s.h.restarts.Load() != 1 {
		t.Errorf("%v, %d restarts of the host, and %d of the device", err, s.restarts, s.h.restarts.Load())
	}
	if len(s.signs) == 0 || !errors.As(s.signs[0], &hang) {
		t.Errorf("the signs were %v", s.signs)
	}
}

func TestHostThatDoesNotRestartFailsLab(t *testing.T) {
	s, d := farSwitchable(t)
	s.broken = true
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/crash"}, func(*conformance.Bench) error {
		s.h.killed()
		return nil
	})
	if err == nil || d.Err() == nil || !strings.Contains(d.Err().Error(), "no power") {
		t.Errorf("the case: %v, and then: %v", err, d.Err())
	}
}

func TestNoRestartAfterInterrupt(t *testing.T) {
	s, d := farSwitchable(t)
	ctx, cancel := context.WithCancel(t.Context())
	_ = d.WithBench(ctx, conformance.BenchSpec{Case: "risky/echo"}, func(*conformance.Bench) error {
		s.h.killed()
		cancel()
		return nil
	})
	if s.restarts != 0 || d.Err() != nil {
		t.Errorf("%d restarts, and then: %v", s.restarts, d.Err())
	}
}
