package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestSimulatedCases(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		body     func(*conformance.Bench) error
	}{
		"echo": {"softroce", echo}, "toUnknownQP": {"softroce", toUnknownQP}, "toOtherAddresses": {"softroce", toOtherAddresses},
		"linkDownAndUp": {"softroce", linkDownAndUp}, "removeAndAddAddress": {"softroce", removeAndAddAddress}, "sendToPartner": {"softroce", sendToPartner}, "tasks": {"softroce", tasks},
		"reopenDevice": {"softroce", reopenDevice},
		"sendGarbage":  {"softiwarp", sendGarbage}, "acceptConnect": {"softiwarp", acceptConnect},
	} {
		for _, family := range []int{0, 4, 6} {
			t.Run(fmt.Sprint(name, family), func(t *testing.T) {
				l := InSimulation(provider(t, c.provider), SimOptions{})
				if err := l.WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{Family: family}}, c.body); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// runSimulated runs a body on a simulated bench.
func runSimulated(t *testing.T, name string, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	t.Helper()
	return InSimulation(provider(t, name), SimOptions{}).WithBench(t.Context(), job, body)
}

func TestSetups(t *testing.T) {
	for _, c := range []struct {
		provider string
		setup    conformance.Setup
		refused  string // part of the error; "" if there is none
	}{
		{"softroce", conformance.Setup{}, ""},
		{"softroce", conformance.Setup{TwoAddresses: true, Family: 4}, ""},
		{"softroce", conformance.Setup{Markers: true}, "markers"},
		{"softroce", conformance.Setup{NoCRC: true}, "no option crc"},
		{"softroce", conformance.Setup{Reliable: true}, "no option reliable"},
		{"softroce", conformance.Setup{MTU: 1500}, ""},
		{"softroce", conformance.Setup{MTU: 300}, "MTU 300"},
		{"softiwarp", conformance.Setup{Markers: true, NoCRC: true, TwoAddresses: true}, ""},
		{"softiwarp", conformance.Setup{Isolate: true}, "no option isolate_peers"},
		{"dgiwarp", conformance.Setup{TwoAddresses: true}, ""},
		{"dgiwarp", conformance.Setup{Reliable: true, Isolate: true}, ""},
		{"dgiwarp", conformance.Setup{Markers: true}, "markers"},
	} {
		ran := false
		err := runSimulated(t, c.provider, conformance.BenchSpec{Setup: c.setup}, func(b *conformance.Bench) error {
			ran = true
			attr, err := b.Device.QueryDevice()
			if err != nil || attr.Caps != b.Caps || b.Caps == 0 {
				return fmt.Errorf("caps %#x, the device has %#x, %w", b.Caps, attr.Caps, err)
			}
			if c.setup.Reliable && !b.Caps.Has(verbs.CapAtomics) {
				return errors.New("no reliable service")
			}
			for i, a := range b.Local {
				if g, err := b.Device.QueryGID(1, i); err != nil || g.GID.Addr() != a {
					return fmt.Errorf("GID %d is %v, not %v: %w", i, g.GID, a, err)
				}
			}
			if (len(b.Local) == 2) != c.setup.TwoAddresses || len(b.Peers) != 4 || b.Local[0].Is4() != (c.setup.Family == 4) || b.Peers[3].Is4() != b.Local[0].Is4() {
				return fmt.Errorf("%v and %v", b.Local, b.Peers)
			}
			if (b.Streams != nil) != (c.provider == "softiwarp") || (b.Wire != nil) == (b.Streams != nil) {
				return fmt.Errorf("wire %v, streams %v", b.Wire, b.Streams)
			}
			if want := c.setup.MTU; want == 0 && b.MTU != 9000 || want != 0 && b.MTU != want {
				return fmt.Errorf("MTU %d", b.MTU)
			}
			return nil
		})
		var setup *conformance.SetupError
		switch {
		case c.refused == "":
			if err != nil || !ran {
				t.Errorf("%s %+v: %v", c.provider, c.setup, err)
			}
		case !errors.As(err, &setup) || !strings.Contains(err.Error(), c.refused) || ran:
			t.Errorf("%s %+v: %v", c.provider, c.setup, err)
		}
	}
}

func TestDefectsApplyToDeviceUnderTest(t *testing.T) {
	// With ArmsWithoutChannel, arming a CQ without a channel is no error.
	arm := func(d verbs.Context) error {
		cq, err := d.CreateCQ(verbs.CQInit{Depth: 1})
		if err != nil {
			return err
		}
		return cq.ReqNotify(false)
	}
	for _, defects := range [][]string{nil, {"ArmsWithoutChannel"}} {
		err := runSimulated(t, "softroce", conformance.BenchSpec{Defects: defects}, func(b *conformance.Bench) error {
			partner, err := b.Partner()
			if err != nil {
				return err
			}
			device, other := arm(b.Device), arm(partner)
			if (device == nil) != (defects != nil) || other == nil {
				return fmt.Errorf("with %v: device %w, partner %w", defects, device, other)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	err := runSimulated(t, "softroce", conformance.BenchSpec{Defects: []string{"NoSuchDefect"}}, nil)
	var setup *conformance.SetupError
	if err == nil || !strings.Contains(err.Error(), "NoSuchDefect") || errors.As(err, &setup) {
		t.Error(err)
	}
}

func TestSameSeedGivesSameRecord(t *testing.T) {
	record := func(seed uint64) []conformance.Event {
		r := new(conformance.Record)
		must.Do(t, runSimulated(t, "softroce", conformance.BenchSpec{Seed: seed, Record: r}, func(b *conformance.Bench) error {
			b.Note("drew %d", b.Rand.Uint64())
			return echo(b)
		}))
		events, _ := r.Events()
		return events
	}
	first := record(1)
	if len(first) != 3 || first[1].Kind != conformance.EventSent || first[2].Kind != conformance.EventReceived || first[2].At <= first[1].At {
		t.Errorf("%+v", first)
	}
	if again := record(1); !reflect.DeepEqual(first, again) {
		t.Errorf("%+v, in the second run %+v", first, again)
	}
	if other := record(2); reflect.DeepEqual(first, other) {
		t.Error("another seed gives the same record")
	}
}

func TestPacketsTakeAMicrosecond(t *testing.T) {
	err := runSimulated(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		u, err := newDatagrams(b, b.Device)
		if err != nil {
			return err
		}
		before := b.Now()
		if err := u.send("late", b.Peers[0], 1); err != nil {
			return err
		}
		f, err := b.Wire.Recv(b.ResponseTimeout())
		if took := f.At - before; err != nil || took < pathLatency || took > pathLatency+5*time.Microsecond || f.At != b.Now() && b.Now() < f.At {
			return fmt.Errorf("sent at %v, received at %v, now %v: %w", before, f.At, b.Now(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// As on an Ethernet link, the device must check the IP address.
func TestPacketsToOtherAddressesReachDevice(t *testing.T) {
	must.Do(t, runSimulated(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		u, err := newDatagrams(b, b.Device)
		if err != nil {
			return err
		}
		for _, to := range []netip.Addr{netip.MustParseAddr("fd00:ffff::1"), b.Local[0]} {
			_, packet := rawSend(b.Peers[0], to, u.qp.QPN(), to.String())
			if err := b.Wire.Send(packet); err != nil {
				return err
			}
		}
		wc, err := u.next(b.ResponseTimeout())
		if got := string(u.buf[verbs.GRHLen:wc.ByteLen]); err != nil || got != b.Local[0].String() {
			return fmt.Errorf("got %q, %w", got, err)
		}
		received := uint64(0)
		for _, c := range b.Device.Counters() {
			if strings.HasPrefix(c.Name, "rcvd_pkts") {
				received = c.Value
			}
		}
		if received != 2 {
			return fmt.Errorf("the device received %d packets: %v", received, b.Device.Counters())
		}
		return nil
	}))
}

func TestSimulatedHangs(t *testing.T) {
	l := InSimulation(provider(t, "softroce"), SimOptions{MaxEvents: 10_000, MaxTime: time.Hour})
	for name, c := range map[string]struct {
		body func(*conformance.Bench) error
		want []string
	}{
		"no packet": {
			func(b *conformance.Bench) error { _, err := b.Wire.Recv(verbs.Forever); return err },
			[]string{"no event is pending", "case waits for a packet from the device"},
		},
		"a task": {
			func(b *conformance.Bench) error {
				return b.Go("events", func() error { _, err := b.Device.WaitAsync(verbs.Forever); return err }).Wait(verbs.Forever)
			},
			[]string{"case waits for the end of task events", "task events waits for"},
		},
		"polling": {
			func(b *conformance.Bench) error {
				for {
					_, _ = b.Wire.Recv(0)
				}
			},
			[]string{"10000 events"},
		},
		"sleeping": {
			func(b *conformance.Bench) error { b.Sleep(100 * time.Hour); return nil },
			[]string{"case waits for the end of its sleep"},
		},
	} {
		err := l.WithBench(t.Context(), conformance.BenchSpec{}, c.body)
		var hang *conformance.HangError
		if !errors.As(err, &hang) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
}

func TestTasksMustBeWaitedFor(t *testing.T) {
	failed := errors.New("failed")
	err := runSimulated(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		b.Go("left", func() error { b.Sleep(time.Hour); return nil })
		b.Go("not waited for", func() error { return failed })
		b.Sleep(time.Second)
		return nil
	})
	if err == nil || !errors.Is(err, failed) || !strings.Contains(err.Error(), `"left"`) {
		t.Error(err)
	}
	err = runSimulated(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		b.Go("left", func() error { b.Sleep(time.Hour); return nil })
		return conformance.Violated("this", "that")
	})
	if !conformance.IsViolation(err) || strings.Contains(err.Error(), "left") {
		t.Errorf("not the violation of the case: %v", err)
	}
}

func BenchmarkSimulatedCase(b *testing.B) {
	for _, name := range nics.Names() {
		b.Run(name, func(b *testing.B) {
			l := InSimulation(provider(b, name), SimOptions{})
			b.ReportAllocs()
			for b.Loop() {
				must.Do(b, l.WithBench(b.Context(), conformance.BenchSpec{}, func(*conformance.Bench) error { return nil }))
			}
		})
	}
	b.Run("echo", func(b *testing.B) {
		l := InSimulation(provider(b, "softroce"), SimOptions{})
		b.ReportAllocs()
		for b.Loop() {
			must.Do(b, l.WithBench(b.Context(), conformance.BenchSpec{}, echo))
		}
	})
}

func TestPathWithFullLoss(t *testing.T) {
	must.Do(t, runSimulated(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		u, err := newDatagrams(b, b.Device)
		if err != nil {
			return err
		}
		for _, path := range []conformance.Path{{LossPPM: 1_000_000}, {}} {
			if err := b.SetPath(path); err != nil {
				return err
			}
			_, packet := rawSend(b.Peers[0], b.Local[0], u.qp.QPN(), "hello")
			if err := b.Wire.Send(packet); err != nil {
				return err
			}
			_, err := u.next(time.Millisecond)
			if lost := path.LossPPM > 0; (err != nil) != lost {
				return fmt.Errorf("with %+v: %w", path, err)
			}
		}
		return nil
	}))
}

func TestPathOfStreamsIsUnsupported(t *testing.T) {
	must.Do(t, runSimulated(t, "softiwarp", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		if err := b.SetPath(conformance.Path{}); err != nil {
			return err
		}
		if err := b.SetPath(conformance.Path{LossPPM: 1}); !errors.Is(err, conformance.ErrBenchCannot) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	}))
}

// Partners are not restricted.
func TestRestrictionsApplyToDeviceUnderTest(t *testing.T) {
	p := must.Get(nics.Find("softroce"))(t)
	lab := InSimulation(p, SimOptions{Restrictions: nics.Restrictions{MissingCaps: verbs.CapXRC, PKeys: []uint16{0xffff}}})
	must.Do(t, lab.WithBench(t.Context(), conformance.BenchSpec{Case: "a/b/c", Seed: 1}, func(b *conformance.Bench) error {
		own, err := b.Device.QueryDevice()
		if err != nil {
			return err
		}
		port, err := b.Device.QueryPort(1)
		if err != nil {
			return err
		}
		if b.Caps.Has(verbs.CapXRC) || own.Caps != b.Caps || !b.Caps.Has(verbs.CapRC) || port.PKeys != 1 {
			t.Errorf("the bench has caps %#x, the device %#x and %d partitions", b.Caps, own.Caps, port.PKeys)
		}
		partner, err := b.Partner()
		if err != nil {
			return err
		}
		other, err := partner.QueryDevice()
		if !other.Caps.Has(verbs.CapXRC) {
			t.Errorf("its partner has caps %#x", other.Caps)
		}
		return err
	}))
}

// Each verb call takes VerbTime of virtual time.
func TestVerbCallsTakeVerbTime(t *testing.T) {
	const verbTime = 40 * time.Millisecond
	lab := InSimulation(provider(t, "softroce"), SimOptions{VerbTime: verbTime})
	must.Do(t, lab.WithBench(t.Context(), conformance.BenchSpec{}, func(b *conformance.Bench) error {
		u, err := newDatagrams(b, b.Device)
		if err != nil {
			return err
		}
		for name, call := range map[string]func() error{
			"alloc PD": func() error { _, err := b.Device.AllocPD(); return err },
			"post":     func() error { _, err := u.qp.PostRecv([]verbs.RecvWR{{WRID: 3}}); return err },
			"poll":     func() error { _, err := u.cq.Poll(make([]verbs.WC, 1)); return err },
		} {
			begin := b.Now()
			if err := call(); err != nil || b.Now()-begin != verbTime {
				return fmt.Errorf("%s took %v, want %v: %w", name, b.Now()-begin, verbTime, err)
			}
		}
		return nil
	}))
}
