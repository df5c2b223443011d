package bench

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// loopHost has an emulated iWARP device on the loopback interface, which talks to itself.
func loopHost(t *testing.T) *farHost {
	t.Helper()
	p := must.Get(nics.Find("softiwarp"))(t)
	maker := must.Get(p.NewOpener(nics.Setup{}))(t)
	lo := netip.MustParsePrefix("127.0.0.1/8")
	return &farHost{
		id: agent.DeviceIdentity{
			Info: verbs.DeviceInfo{Name: "emu0", Transport: verbs.TransportIWARP}, NetDevice: "lo", MTU: 65536, Addrs: []netip.Prefix{lo},
		},
		open: func() (verbs.Context, error) {
			return maker.OnSockets(nics.NICConfig{Name: "emu0", Addr: lo.Addr(), NoGSO: true})
		},
	}
}

func TestLocalDevicePassesVerbsAPI(t *testing.T) {
	lab := must.Get(OnLocalDevice(loopHost(t), "emu0", 0))(t)
	suite := verbsapi.Suite()
	passed, unasked := 0, 0
	for i := range suite.Cases {
		c := &suite.Cases[i]
		if i%7 != 0 || c.Dangerous() {
			continue
		}
		switch res := conformance.Judge(t.Context(), lab, c, conformance.Options{Seed: 1}); res.Verdict {
		case conformance.VerdictPass:
			passed++
		case conformance.VerdictUnsupported:
			unasked++
		default:
			t.Errorf("%s: %s: %v", c.ID, res.Verdict, res.Err)
		}
	}
	if passed < 10 || unasked == 0 {
		t.Errorf("%d passed, and %d were not supported", passed, unasked)
	}
}

func TestLocalDeviceHangs(t *testing.T) {
	lab := must.Get(OnLocalDevice(loopHost(t), "emu0", 50*time.Millisecond))(t)
	var hang *conformance.HangError
	err := lab.WithBench(t.Context(), conformance.BenchSpec{Case: "a"}, func(b *conformance.Bench) error {
		b.Sleep(time.Hour)
		return nil
	})
	if !errors.As(err, &hang) {
		t.Errorf("a case without end: %v", err)
	}
	err = lab.WithBench(t.Context(), conformance.BenchSpec{Case: "b"}, func(b *conformance.Bench) error {
		return errors.Join(b.SetPath(conformance.Path{}), b.SetPath(conformance.Path{LossPPM: 1}))
	})
	if !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("a path with losses: %v", err)
	}
	if err := lab.WithBench(t.Context(), conformance.BenchSpec{Case: "c"}, func(b *conformance.Bench) error { return b.SetLink(false) }); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("a link that the host cannot take down: %v", err)
	}
	if _, err := OnLocalDevice(loopHost(t), "other", 0); err == nil || !strings.Contains(err.Error(), "device other") {
		t.Errorf("a device that there is not: %v", err)
	}
}
