package workload_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// faultyCM is a device whose connection manager fails once, in the first call of one verb.
type faultyCM struct {
	verbs.Context
	verb string
	err  error
	done bool
}

// fails returns the error of the verb that fails, once.
func (d *faultyCM) fails(verb string) error {
	if d.done || d.verb != verb {
		return nil
	}
	d.done = true
	return &verbs.OpError{Op: verb, Obj: "peer", Err: d.err}
}

func (d *faultyCM) CM() (verbs.CM, error) {
	m, err := d.Context.CM()
	return faultyCMConn{m, d}, err
}

type faultyCMConn struct {
	verbs.CM
	d *faultyCM
}

func (m faultyCMConn) Connect(qp verbs.QP, addr netip.AddrPort, p verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	if err := m.d.fails("connect"); err != nil {
		return nil, err
	}
	return m.CM.Connect(qp, addr, p, timeout)
}

func (m faultyCMConn) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := m.CM.Listen(addr, space, backlog)
	return faultyListener{l, m.d}, err
}

type faultyListener struct {
	verbs.Listener
	d *faultyCM
}

func (l faultyListener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	if err := l.d.fails("get_request"); err != nil {
		return nil, err
	}
	r, err := l.Listener.GetRequest(timeout)
	return faultyRequest{r, l.d}, err
}

type faultyRequest struct {
	verbs.ConnRequest
	d *faultyCM
}

func (r faultyRequest) Accept(qp verbs.QP, p verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	if err := r.d.fails("accept"); err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	return r.ConnRequest.Accept(qp, p, timeout)
}

// Ranks recover from CM errors that a fabric can cause. Errors that only a device can cause
// fail the run, and the run reports them.
func TestDeviceErrorsOfCMFailTheRun(t *testing.T) {
	t.Parallel()
	fabric := map[string]error{
		"timeout":     verbs.ErrTimeout,
		"rejected":    &verbs.RejectError{Reason: 10, Text: "stale"},
		"unreachable": fmt.Errorf("%w: no route", verbs.ErrNotFound),
		"ended":       fmt.Errorf("%w: during the handshake", verbs.ErrClosed),
	}
	device := map[string]error{
		"invalid":       verbs.ErrInvalid,
		"unsupported":   verbs.ErrNotSupported,
		"in use":        verbs.ErrBusy,
		"no resources":  verbs.ErrNoMemory,
		"not permitted": verbs.ErrPerm,
		"unknown":       errors.New("firmware error"),
		"both":          fmt.Errorf("%w: %w", verbs.ErrClosed, verbs.ErrInvalid),
	}
	run := func(t *testing.T, verb string, failure error) (*rig, *faultyCM) {
		r := rigOf(t, streams, sim.StreamConfig{}, rigSeed, 2, 1)
		d := &faultyCM{verb: verb, err: failure}
		r.wrap = func(host int, dev verbs.Context) verbs.Context {
			if caller := verb == "connect"; caller != (host == 0) {
				return dev
			}
			d.Context = dev
			return d
		}
		r.patience = time.Second
		r.start(workload.Config{Kind: workload.Stream, Op: workload.OpSend, Messages: 20, Bytes: 100, Reconnect: true})
		must.Do(t, r.RunPrograms())
		if !d.done {
			t.Fatal("no verb failed")
		}
		return r, d
	}
	for _, verb := range []string{"connect", "accept"} {
		for name, failure := range fabric {
			t.Run(verb+" "+name, func(t *testing.T) {
				r, _ := run(t, verb, failure)
				for rank, err := range r.errs {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				clean(t, r.reports)
			})
		}
	}
	for _, verb := range []string{"connect", "accept", "get_request"} {
		for name, failure := range device {
			t.Run(verb+" "+name, func(t *testing.T) {
				r, d := run(t, verb, failure)
				whose := 1
				if verb == "connect" {
					whose = 0
				}
				if err := r.errs[whose]; !errors.Is(err, d.err) || !strings.Contains(err.Error(), verb+" peer") {
					t.Errorf("the run ended with %v", err)
				}
			})
		}
	}
}

// A corrupted stream, during start-up too, makes the connection manager return errors that
// a fabric can cause: no run fails over it.
func TestCorruptedConnectionRequestIsFabricError(t *testing.T) {
	t.Parallel()
	broke := 0
	for seed := range uint64(20) {
		r := rigOf(t, streams, sim.StreamConfig{CorruptPPM: 20_000}, seed, 2, 1)
		r.start(workload.Config{Kind: workload.Stream, Op: workload.OpSend, Messages: 60, Bytes: 2000, Reconnect: true})
		if err := r.RunPrograms(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for rank, err := range r.errs {
			if err != nil {
				t.Errorf("seed %d, rank %d: %v", seed, rank, err)
			}
			broke += r.reports[rank].Reconnects
		}
	}
	if broke == 0 {
		t.Error("no connection broke")
	}
}
