package perf_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// exchange swaps messages between two goroutines.
type exchange struct{ put, take chan []byte }

func newExchange() (a, b exchange) {
	forward, backward := make(chan []byte, 1), make(chan []byte, 1)
	return exchange{forward, backward}, exchange{backward, forward}
}

func (t exchange) Swap(ctx context.Context, mine []byte) ([]byte, error) {
	t.put <- mine
	select {
	case theirs := <-t.take:
		return theirs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// opener opens a device on a loopback address.
type opener func(addr netip.Addr) (verbs.Context, error)

func roce(addr netip.Addr) (verbs.Context, error) {
	return softroce.OnUDP(udplink.Config{}, softroce.Config{Addrs: []netip.Addr{addr}})
}

func iwarp(addr netip.Addr) (verbs.Context, error) {
	return softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Addrs: []netip.Addr{addr}})
}

func datagrams(addr netip.Addr) (verbs.Context, error) {
	return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Addrs: []netip.Addr{addr}})
}

func reliable(addr netip.Addr) (verbs.Context, error) {
	return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Addrs: []netip.Addr{addr}, QP: dgiwarp.QPOptions{Reliable: true}})
}

// sides returns two devices on the loopback network.
func sides(t *testing.T, service perf.Service, open opener) (client, server *perf.Side) {
	t.Helper()
	var s [2]*perf.Side
	for i := range s {
		addr := netip.AddrFrom4([4]byte{127, 74, byte(service), byte(2 + i)})
		d := must.Get(open(addr))(t)
		t.Cleanup(func() { d.Close() })
		s[i] = &perf.Side{Role: perf.Role(i), Device: d, Service: service, Addr: addr}
	}
	s[0].Exchange, s[1].Exchange = newExchange()
	return s[0], s[1]
}

// runBoth runs a program on both sides and returns the client's result.
func runBoth(t *testing.T, p perf.Program, client, server *perf.Side) (float64, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, server)
		if err != nil {
			cancel() // ends the wait of the client
		}
		served <- err
	}()
	f, err := p.Run(ctx, client)
	if err != nil {
		cancel()
	}
	return f.Value, errors.Join(err, <-served)
}

// programs returns programs of each kind that a service supports.
func programs(service perf.Service) []perf.Program {
	const short = 5 * time.Millisecond
	all := []perf.Program{
		{Latency: &perf.Latency{Op: verbs.OpSend, Load: perf.Load{Iterations: 40}}},
		{Latency: &perf.Latency{Op: verbs.OpSend, Bytes: 3000, Load: perf.Load{Iterations: 40}}},
		{Latency: &perf.Latency{Op: verbs.OpSend, Load: perf.Load{Iterations: 40, Events: true}}},
		{Latency: &perf.Latency{Op: verbs.OpSend, WaitForSend: true, Load: perf.Load{Iterations: 40}}},
		{Latency: &perf.Latency{Op: verbs.OpSend, WaitForSend: true, Load: perf.Load{Iterations: 40, Events: true}}},
		{RoundRobin: &perf.RoundRobin{Op: verbs.OpSend, Bytes: 1000, QPs: 5}},
		{Rate: &perf.Rate{Duration: short}},
		{Rate: &perf.Rate{Duration: short, QPs: 7, Depth: 5}},
		{Rate: &perf.Rate{Duration: short, Bytes: 3000, Depth: 1}},
		{Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2048, Duration: short}},
		{Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2048, Duration: short, Load: perf.Load{PostList: 1}}},
	}
	if service != perf.ServiceUC {
		all = append(all, perf.Program{Registration: &perf.Registration{Bytes: 5000, Iterations: 20}})
	}
	for _, l := range []perf.Load{
		{Iterations: 300, Depth: 128, PostList: 1, Moderation: 100},
		{Iterations: 101, Depth: 8, PostList: 3, Moderation: 5, QPs: 3, Warmup: 7},
		{Iterations: 100, Inline: 64, Events: true},
		{Iterations: 100, Buffer: 100 << 10},
	} {
		all = append(all, perf.Program{Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 64, Load: l}})
	}
	if service == perf.ServiceUD {
		return all
	}
	all = append(all, perf.Program{Latency: &perf.Latency{Op: verbs.OpRDMAWrite, Bytes: 13, Load: perf.Load{Iterations: 40, Inline: 16}}})
	if service == perf.ServiceUC {
		return all
	}
	all = append(all, perf.Program{RoundRobin: &perf.RoundRobin{Op: verbs.OpRDMAWrite, Bytes: 1000, QPs: 5, Rounds: 20}})
	if service != perf.ServiceIWARP {
		all = append(all, perf.Program{Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2048, Load: perf.Load{Iterations: 300, BothWays: true, QPs: 2}}})
	}
	for _, op := range []verbs.WROpcode{verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp, verbs.OpRDMARead} {
		all = append(all,
			perf.Program{Latency: &perf.Latency{Op: op, Load: perf.Load{Iterations: 20}}},
			perf.Program{Latency: &perf.Latency{Op: op, Load: perf.Load{Iterations: 20, Events: true}}},
			perf.Program{Stream: &perf.Stream{Op: op, Bytes: 8, Load: perf.Load{Iterations: 100, QPs: 2, Depth: 40}}})
	}
	all = append(all,
		perf.Program{Latency: &perf.Latency{Op: verbs.OpRDMAWrite, Load: perf.Load{Iterations: 40}}},
		perf.Program{Stream: &perf.Stream{Op: verbs.OpRDMAWrite, Bytes: 4096, Duration: short, Load: perf.Load{BothWays: true}}},
		perf.Program{Stream: &perf.Stream{Op: verbs.OpRDMARead, Bytes: 4096, Duration: short, Load: perf.Load{QPs: 2}}})
	for _, op := range []verbs.WROpcode{verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpSend} {
		for _, n := range []int{1, 64, 100_000} {
			all = append(all, perf.Program{Stream: &perf.Stream{Op: op, Bytes: n, Duration: short}})
		}
	}
	return all
}

func TestProgramsReturnResults(t *testing.T) {
	for name, c := range map[string]struct {
		open    opener
		service perf.Service
	}{
		"soft-RoCE": {roce, perf.ServiceRC},
		// The CM can connect RoCE queue pairs, too.
		"soft-RoCE, by CM":    {roce, perf.ServiceIWARP},
		"soft-RoCE datagrams": {roce, perf.ServiceUD},
		"soft-RoCE, UC":       {roce, perf.ServiceUC},
		"soft-RoCE, XRC":      {roce, perf.ServiceXRC},
		// iWARP breaks the connection if a message finds no receive.
		"soft-iWARP":               {iwarp, perf.ServiceIWARP},
		"datagram-iWARP":           {datagrams, perf.ServiceUD},
		"datagram-iWARP, reliable": {reliable, perf.ServiceRD},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := sides(t, c.service, c.open)
			for _, p := range programs(c.service) {
				if v, err := runBoth(t, p, client, server); err != nil || v <= 0 {
					t.Fatalf("%v: %v %s, %v", p, v, p.Unit(), err)
				}
			}
			// All objects are closed: regions, queues and their events.
			for _, s := range []*perf.Side{client, server} {
				if err := s.Device.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// lossyLink drops each n-th sent datagram, where n is every.
type lossyLink struct {
	link.Waiter
	every, sent int
}

func (l *lossyLink) Send(now mono.Time, ds []link.Datagram) (int, error) {
	for i := range ds {
		if l.sent++; l.sent%l.every == 0 {
			continue // dropped
		}
		if n, err := l.Waiter.Send(now, ds[i:i+1]); n == 0 || err != nil {
			l.sent--
			return i, err
		}
	}
	return len(ds), nil
}

// lossySides returns two UD devices that drop each n-th datagram.
func lossySides(t *testing.T, every int) (client, server *perf.Side) {
	return sides(t, perf.ServiceUD, func(addr netip.Addr) (verbs.Context, error) {
		return softroce.OnUDP(udplink.Config{}, softroce.Config{
			Addrs: []netip.Addr{addr}, Decorate: func(w link.Waiter) link.Waiter { return &lossyLink{Waiter: w, every: every} },
		})
	})
}

func TestLostMessagesAreNotCounted(t *testing.T) {
	client, server := lossySides(t, 1)
	p := perf.Program{Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2048, Duration: 20 * time.Millisecond}}
	if v, err := runBoth(t, p, client, server); err != nil || v != 0 {
		t.Errorf("%v Gb/s although no datagram arrives, %v", v, err)
	}
}

func TestProgramsSurviveLostDatagrams(t *testing.T) {
	client, server := lossySides(t, 5)
	for _, p := range []perf.Program{
		{Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2048, Duration: 20 * time.Millisecond}},
		{Rate: &perf.Rate{QPs: 3, Duration: 20 * time.Millisecond}},
	} {
		if v, err := runBoth(t, p, client, server); err != nil || v <= 0 {
			t.Errorf("%v: %v %s, %v", p, v, p.Unit(), err)
		}
	}
}

func TestErrorEndsBothSides(t *testing.T) {
	client, server := sides(t, perf.ServiceRC, roce)
	if _, err := runBoth(t, perf.Program{}, client, server); err == nil {
		t.Error("an empty program succeeded")
	}
	if _, err := runBoth(t, perf.Program{Stream: &perf.Stream{Op: verbs.OpRDMAWrite}}, client, server); err == nil {
		t.Error("a stream of empty messages succeeded")
	}
	one, other := sides(t, perf.ServiceUD, roce)
	if _, err := runBoth(t, perf.Program{Stream: &perf.Stream{Op: verbs.OpRDMAWrite, Bytes: 64}}, one, other); err == nil {
		t.Error("a WRITE over UD succeeded")
	}
	server.Device.Close()
	_, err := runBoth(t, perf.Program{Latency: &perf.Latency{Op: verbs.OpSend}}, client, server)
	if !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("on a closed device: %v", err)
	}
}

func TestProgramsHaveNames(t *testing.T) {
	for want, p := range map[string]perf.Program{
		"write 1 MiB":                   {Stream: &perf.Stream{Op: verbs.OpRDMAWrite, Bytes: 1 << 20}},
		"read 64 B":                     {Stream: &perf.Stream{Op: verbs.OpRDMARead, Bytes: 64}},
		"send 3 KiB":                    {Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 3 << 10}},
		"send 2 KiB, singly":            {Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2 << 10, Load: perf.Load{PostList: 1}}},
		"half round trip 8 B, spinning": {Latency: &perf.Latency{Op: verbs.OpSend}},
		"half round trip 9 B, blocking, confirmed":   {Latency: &perf.Latency{Op: verbs.OpSend, Bytes: 9, WaitForSend: true, Load: perf.Load{Events: true}}},
		"half round trip 8 B, send on 5 QPs":         {RoundRobin: &perf.RoundRobin{Op: verbs.OpSend, Bytes: 8, QPs: 5}},
		"sends of 64 B, 1 QPs":                       {Rate: &perf.Rate{}},
		"nothing":                                    {},
		fmt.Sprintf("sends of %d B, %d QPs", 100, 4): {Rate: &perf.Rate{Bytes: 100, QPs: 4}},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWithConnection(t *testing.T) {
	client, server := sides(t, perf.ServiceRC, roce)
	done := make(chan error, 1)
	go func() { done <- perf.WithConnection(t.Context(), server, func() error { return nil }) }()
	var mb float64
	err := perf.WithConnection(t.Context(), client, func() (err error) {
		mb, err = perf.ResidentMB()
		return err
	})
	must.Do(t, errors.Join(err, <-done))
	if mb < 1 || mb > 10_000 {
		t.Errorf("%v MB resident", mb)
	}
}
