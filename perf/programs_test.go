package perf_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// table is an exchange between two goroutines.
type table struct{ put, take chan []byte }

func newTable() (a, b table) {
	there, back := make(chan []byte, 1), make(chan []byte, 1)
	return table{there, back}, table{back, there}
}

func (t table) Swap(ctx context.Context, mine []byte) ([]byte, error) {
	t.put <- mine
	select {
	case theirs := <-t.take:
		return theirs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sides are two devices on the loopback network.
func sides(t *testing.T) (client, server *perf.Side) {
	t.Helper()
	var s [2]*perf.Side
	for i, addr := range []string{"127.72.0.2", "127.72.0.3"} {
		d, err := softroce.OnUDP(udplink.Config{}, softroce.Config{Name: addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		s[i] = &perf.Side{Role: perf.Role(i), Device: d}
	}
	s[0].Exchange, s[1].Exchange = newTable()
	return s[0], s[1]
}

// play runs a program on both sides and returns the client's figure.
func play(t *testing.T, p perf.Program, client, server *perf.Side) (float64, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, server)
		if err != nil {
			cancel() // or the client would wait for what never comes
		}
		served <- err
	}()
	v, err := p.Run(ctx, client)
	if err != nil {
		cancel()
	}
	return v, errors.Join(err, <-served)
}

func TestProgramsGiveFigures(t *testing.T) {
	client, server := sides(t)
	const short = 5 * time.Millisecond
	programs := []perf.Program{
		{PingPong: &perf.PingPong{Rounds: 300}},
		{PingPong: &perf.PingPong{Rounds: 300, Bytes: 5000}},
		{PingPong: &perf.PingPong{Rounds: 300, Blocking: true}},
		{PingPong: &perf.PingPong{Rounds: 300, Confirmed: true}},
		{PingPong: &perf.PingPong{Rounds: 300, Blocking: true, Confirmed: true}},
		{Rate: &perf.Rate{Duration: short}},
		{Rate: &perf.Rate{Duration: short, QPs: 7, Depth: 5}},
		{Rate: &perf.Rate{Duration: short, Bytes: 3000, Depth: 1}},
	}
	for _, op := range []verbs.WROpcode{verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpSend} {
		for _, n := range []int{1, 64, 100_000} {
			programs = append(programs, perf.Program{Stream: &perf.Stream{Op: op, Bytes: n, Duration: short}})
		}
	}
	for _, p := range programs {
		if v, err := play(t, p, client, server); err != nil || v <= 0 {
			t.Errorf("%v: %v %s, %v", p, v, p.Unit(), err)
		}
	}
	// Everything was taken down again: regions, queues and their events.
	for _, s := range []*perf.Side{client, server} {
		if err := s.Device.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFailureIsToldAndEndsBothSides(t *testing.T) {
	client, server := sides(t)
	if _, err := play(t, perf.Program{}, client, server); err == nil {
		t.Error("no program ran, and nobody complained")
	}
	if _, err := play(t, perf.Program{Stream: &perf.Stream{Op: verbs.OpRDMAWrite}}, client, server); err == nil {
		t.Error("messages of no size were streamed")
	}
	server.Device.Close()
	_, err := play(t, perf.Program{PingPong: &perf.PingPong{}}, client, server)
	if !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("on a closed device: %v", err)
	}
}

func TestProgramsHaveNames(t *testing.T) {
	for want, p := range map[string]perf.Program{
		"write 1 MiB":                   {Stream: &perf.Stream{Op: verbs.OpRDMAWrite, Bytes: 1 << 20}},
		"read 64 B":                     {Stream: &perf.Stream{Op: verbs.OpRDMARead, Bytes: 64}},
		"send 3 KiB":                    {Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 3 << 10}},
		"half round trip 8 B, spinning": {PingPong: &perf.PingPong{}},
		"half round trip 9 B, blocking, confirmed":   {PingPong: &perf.PingPong{Bytes: 9, Blocking: true, Confirmed: true}},
		"sends of 64 B, 1 QPs":                       {Rate: &perf.Rate{}},
		"nothing":                                    {},
		fmt.Sprintf("sends of %d B, %d QPs", 100, 4): {Rate: &perf.Rate{Bytes: 100, QPs: 4}},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestConnectedLooksAtItself(t *testing.T) {
	client, server := sides(t)
	done := make(chan error, 1)
	go func() { done <- perf.Connected(t.Context(), server, func() error { return nil }) }()
	var mb float64
	err := perf.Connected(t.Context(), client, func() (err error) {
		mb, err = perf.ResidentMB()
		return err
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if mb < 1 || mb > 10_000 {
		t.Errorf("%v MB resident", mb)
	}
}
