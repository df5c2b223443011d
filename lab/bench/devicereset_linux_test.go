package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// restartableHost is the host of a remote device, with a power switch and a console.
type restartableHost struct {
	h         *remoteHost
	d         *Device
	t         *testing.T
	console   string // its next output
	symptoms  []error
	notes     []string // of the lab
	restarts  int
	connected bool // the last Restart was called with an open connection to the agent
	broken    bool // Restart fails
}

func (s *restartableHost) Problem(symptom error) error {
	s.symptoms = append(s.symptoms, symptom)
	if output := s.console; output != "" {
		s.console = ""
		return errors.New(output)
	}
	if errors.Is(symptom, agent.ErrLost) {
		return symptom
	}
	return nil
}

func (s *restartableHost) Restart(ctx context.Context) (*agent.Client, error) {
	s.restarts++
	s.connected = s.d.client.Load().Err() == nil
	if s.broken {
		return nil, errors.New("no power")
	}
	if s.h.wedged != nil {
		close(s.h.wedged)
	}
	s.h.stopAgent()
	s.h.serve(s.t)
	return s.h.dial(ctx)
}

// onRestartableHost returns a lab with a remote device on such a host.
func onRestartableHost(t *testing.T) (*restartableHost, *Device) {
	t.Helper()
	h, d := onRemoteRoCE(t)
	s := &restartableHost{h: h, d: d, t: t}
	d.opt.Host, d.opt.OnNote = s, func(note string) { s.notes = append(s.notes, note) }
	return s, d
}

// The case has no verdict on the device, and the next one runs.
func TestCrashedHostIsRestarted(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(*restartableHost, *conformance.Bench) error
		want []string
		note string // part of the reason of the restart
	}{
		{"agent lost", func(s *restartableHost, b *conformance.Bench) error {
			s.h.stopAgent()
			s.console = "Kernel panic\nRIP: 0010"
			_, err := b.Device.QueryPort(1)
			return conformance.Violatedf("a reply", "%v", err)
		}, []string{"crashed during the case: Kernel panic\nRIP: 0010"}, "(Kernel panic)"},
		{"agent lost without output", func(s *restartableHost, _ *conformance.Bench) error {
			s.h.stopAgent()
			return nil
		}, []string{"crashed during the case", "lost"}, "lost"},
		{"kernel bug, case passes", func(s *restartableHost, _ *conformance.Bench) error {
			s.console = "BUG: scheduling while atomic"
			return nil
		}, []string{"crashed during the case: BUG: scheduling while atomic"}, "(BUG: scheduling while atomic)"},
		{"kernel bug, case fails", func(s *restartableHost, _ *conformance.Bench) error {
			s.console = "BUG: scheduling while atomic"
			return conformance.Violatedf("one", "another")
		}, []string{"got another; the device's host", "BUG: scheduling while atomic"}, "(BUG: scheduling while atomic)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, d := onRestartableHost(t)
			err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/crash"}, func(b *conformance.Bench) error { return c.body(s, b) })
			if err == nil || conformance.IsViolation(err) {
				t.Fatalf("the case: %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the case: %v, without %q", err, want)
				}
			}
			if s.restarts != 1 || s.connected || s.h.restarts.Load() != 0 {
				t.Errorf("%d restarts of the host (connected to its agent: %v), and %d of the device", s.restarts, s.connected, s.h.restarts.Load())
			}
			const restarted = "The host of remote0 was restarted after some/crash ("
			if len(s.notes) != 1 || !strings.HasPrefix(s.notes[0], restarted) || !strings.Contains(s.notes[0], c.note) || strings.Contains(s.notes[0], "\n") {
				t.Errorf("notes %q, want one line with %q and %q", s.notes, restarted, c.note)
			}
			if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err != nil || s.restarts != 1 {
				t.Errorf("next case: %v, after %d restarts", err, s.restarts)
			}
		})
	}
}

func TestHostOfWedgedDeviceIsRestarted(t *testing.T) {
	s, d := onRestartableHost(t)
	s.h.wedged, d.restartTimeout = make(chan struct{}), 20*time.Millisecond
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || s.restarts != 1 || d.Err() != nil {
		t.Fatalf("first case: %v, %d restarts of the host, lab error: %v", err, s.restarts, d.Err())
	}
	d.restartTimeout = defaultRestartTimeout
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "risky/echo"}, echo); err != nil || s.restarts != 1 {
		t.Errorf("next case: %v, %d restarts of the host", err, s.restarts)
	}
}

// The device of a host that was restarted may not be there at once: the lab opens it again.
func TestDeviceThatIsLateAfterRestartIsAwaited(t *testing.T) {
	s, d := onRestartableHost(t)
	open := s.h.open
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/crash"}, func(*conformance.Bench) error {
		s.h.stopAgent() // and nothing calls open until the host was restarted
		failed := false
		s.h.open = func() (verbs.Context, error) {
			if !failed {
				failed = true
				return nil, verbs.ErrNotFound
			}
			return open()
		}
		return nil
	})
	if err == nil || s.restarts != 1 || d.Err() != nil {
		t.Errorf("case: %v, %d restarts, lab error: %v", err, s.restarts, d.Err())
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/echo"}, echo); err != nil {
		t.Errorf("next case: %v", err)
	}
}

func TestHungCaseChecksHost(t *testing.T) {
	s, d := onRestartableHost(t)
	d.opt.MaxTime = 50 * time.Millisecond
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/hang"}, func(b *conformance.Bench) error {
		b.Runtime.Sleep(time.Hour)
		return nil
	})
	var hang *conformance.HangError
	if !errors.As(err, &hang) || s.restarts != 0 || s.h.restarts.Load() != 1 {
		t.Errorf("%v, %d restarts of the host, and %d of the device", err, s.restarts, s.h.restarts.Load())
	}
	if len(s.symptoms) == 0 || !errors.As(s.symptoms[0], &hang) {
		t.Errorf("symptoms %v", s.symptoms)
	}
}

func TestHostThatDoesNotRestartFailsLab(t *testing.T) {
	s, d := onRestartableHost(t)
	s.broken = true
	err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/crash"}, func(*conformance.Bench) error {
		s.h.stopAgent()
		return nil
	})
	if err == nil || d.Err() == nil || !strings.Contains(d.Err().Error(), "no power") {
		t.Errorf("case: %v, lab error: %v", err, d.Err())
	}
}

func TestNoRestartAfterInterrupt(t *testing.T) {
	s, d := onRestartableHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	_ = d.WithBench(ctx, conformance.BenchSpec{Case: "risky/echo"}, func(*conformance.Bench) error {
		s.h.stopAgent()
		cancel()
		return nil
	})
	if s.restarts != 0 || d.Err() != nil {
		t.Errorf("%d restarts, lab error: %v", s.restarts, d.Err())
	}
}
