package bench

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// sendGarbage connects to a listening iWARP device and sends octets that are no MPA frame.
func sendGarbage(b *conformance.Bench) error {
	cm, err := b.Device.CM()
	if err != nil {
		return err
	}
	at := netip.AddrPortFrom(b.Local[0], 7471)
	l, err := cm.Listen(at, verbs.PortSpaceTCP, 4)
	if err != nil {
		return err
	}
	s, err := b.Streams.Dial(at, b.ResponseTimeout())
	if err != nil {
		return err
	}
	if s.Remote() != at || s.Local().Addr() != b.Peers[0] || s.MSS() < 8000 {
		return fmt.Errorf("stream %v > %v with MSS %d", s.Local(), s.Remote(), s.MSS())
	}
	if err := s.Write([]byte("GET / HTTP/1.0\r\nHost: none\r\n\r\n")); err != nil {
		return err
	}
	switch _, err := s.Read(b.ResponseTimeout()); {
	case errors.Is(err, io.EOF), errors.Is(err, conformance.ErrReset):
	default:
		return fmt.Errorf("after octets that are no MPA frame: %w", err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	if _, err := b.Streams.Dial(at, b.ResponseTimeout()); !errors.Is(err, conformance.ErrReset) {
		return fmt.Errorf("dial after the listener was closed: %w", err)
	}
	return nil
}

// acceptConnect accepts the stream of a connecting device, reads the MPA Request, and resets it.
func acceptConnect(b *conformance.Bench) error {
	l, err := b.Streams.Listen(0)
	if err != nil {
		return err
	}
	if _, err := l.Accept(time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		return fmt.Errorf("accept before a connection: %w", err)
	}
	cm, err := b.Device.CM()
	if err != nil {
		return err
	}
	pd, err := b.Device.AllocPD()
	if err != nil {
		return err
	}
	cq, err := b.Device.CreateCQ(verbs.CQInit{Depth: 16})
	if err != nil {
		return err
	}
	qp, err := b.Device.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: pd, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	connecting := b.Go("connect", func() error {
		_, err := cm.Connect(qp, l.Addr(), verbs.ConnParam{PrivateData: []byte("hi")}, b.ResponseTimeout())
		return err
	})
	s, err := l.Accept(b.ResponseTimeout())
	if err != nil {
		return err
	}
	first, err := s.Read(b.ResponseTimeout())
	if err != nil || string(first[:16]) != "MPA ID Req Frame" {
		return fmt.Errorf("the device begins with %q, %w", first, err)
	}
	if _, err := s.Read(10 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		return fmt.Errorf("octets after the MPA Request: %w", err)
	}
	// It may retry with fewer options, without a listener.
	if err := errors.Join(l.Close(), s.Reset()); err != nil {
		return err
	}
	if err := connecting.Wait(b.ResponseTimeout()); err == nil || errors.Is(err, verbs.ErrTimeout) {
		return fmt.Errorf("connect after the reset: %w", err)
	}
	return nil
}

// Slow verb calls, as through an agent on a busy virtual machine, must not change verdicts. Agents
// do not serve datagram-iWARP. .ci/conform runs all cases.
func TestSlowVerbsChangeNoVerdict(t *testing.T) {
	for _, p := range nics.All() {
		if p.Protocol == conformance.DatagramIWARP {
			continue
		}
		known := must.Get(conformance.DeviationsOf(p.Name, "wire"))(t)
		t.Run(p.Name, func(t *testing.T) {
			lab := InSimulation(p, SimOptions{VerbTime: 40 * time.Millisecond})
			r := &conformance.Runner{Lab: lab, Workers: 2, Options: conformance.Options{Deviations: known}}
			results := must.Get(r.Run(t.Context(), sampleCases(p.Protocol, 10)))(t)
			for _, res := range results {
				if !res.Verdict.Acceptable() {
					t.Errorf("%s: %s: %v", res.Case.ID, res.Verdict, res.Err)
				}
			}
		})
	}
}
