package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// parallelTests is the number of tests that run in parallel. Most of the time they wait.
const parallelTests = 8

func TestMain(m *testing.M) {
	testutil.SetParallel(parallelTests)
	testutil.NamespaceMain(m)
}

// lab returns a lab in network namespaces.
func lab(tb testing.TB, name string, opt NamespaceOptions) *Namespaces {
	tb.Helper()
	if why := testutil.NamespacesUnavailable(); why != nil {
		tb.Skipf("no network namespaces here: %v", why)
	}
	l, err := InNamespaces(provider(tb, name), opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { must.Do(tb, l.Close()) })
	return l
}

type realCase struct {
	name string
	body func(*conformance.Bench) error
}

var realCases = map[string][]realCase{
	"softroce": {
		{"echo", echo},
		{"toUnknownQP", toUnknownQP},
		{"toOtherAddresses", toOtherAddresses},
		{"linkDownAndUp", linkDownAndUp},
		{"removeAndAddAddress", removeAndAddAddress},
		{"reopenDevice", reopenDevice},
		{"sendToPartner", sendToPartner},
		{"tasks", tasks},
		{"echo again", echo},
	},
	"softiwarp": {{"sendGarbage", sendGarbage}, {"acceptConnect", acceptConnect}, {"sendGarbage again", sendGarbage}},
}

func TestCasesInNamespaces(t *testing.T) {
	t.Parallel()
	for name, cases := range realCases {
		l := lab(t, name, NamespaceOptions{})
		for _, c := range cases {
			for _, family := range []int{4, 6} {
				t.Run(fmt.Sprint(c.name, family), func(t *testing.T) {
					if err := l.WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{Family: family}}, c.body); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

func TestSetupsInNamespaces(t *testing.T) {
	refused := func(name string, setup conformance.Setup, want string) {
		t.Helper()
		err := lab(t, name, NamespaceOptions{}).WithBench(t.Context(), conformance.BenchSpec{Setup: setup}, func(*conformance.Bench) error { return nil })
		var e *conformance.SetupError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %+v: %v", name, setup, err)
		}
	}
	refused("softroce", conformance.Setup{TwoAddresses: true}, "one address")
	refused("softroce", conformance.Setup{Markers: true}, "markers")
	err := lab(t, "softroce", NamespaceOptions{}).WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{MTU: 1000}}, func(*conformance.Bench) error { return nil })
	if !errors.Is(err, conformance.ErrBenchCannot) || !strings.Contains(err.Error(), "1280") {
		t.Errorf("an MTU below the minimum of the bench: %v", err)
	}

	l := lab(t, "softiwarp", NamespaceOptions{})
	for _, setup := range []conformance.Setup{{TwoAddresses: true, Markers: true}, {MTU: 1500}, {}} {
		err := l.WithBench(t.Context(), conformance.BenchSpec{Setup: setup}, func(b *conformance.Bench) error {
			attr, err := b.Device.QueryPort(1)
			if err != nil || (attr.ActiveMTU == verbs.MTU4096) != (setup.MTU == 0) {
				return fmt.Errorf("MTU %v, %w", attr.ActiveMTU, err)
			}
			cm, err := b.Device.CM()
			if err != nil {
				return err
			}
			for i, a := range b.Local {
				l, err := cm.Listen(netip.AddrPortFrom(a, 7000), verbs.PortSpaceTCP, 1)
				if err != nil {
					return err
				}
				if _, err := b.Streams.Dial(l.Addr(), b.ResponseTimeout()); err != nil {
					return fmt.Errorf("address %d: %w", i, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%+v: %v", setup, err)
		}
	}
}

func TestAllProvidersInNamespaces(t *testing.T) {
	for _, p := range nics.All() {
		l := lab(t, p.Name, NamespaceOptions{})
		err := l.WithBench(t.Context(), conformance.BenchSpec{}, func(b *conformance.Bench) error {
			if info := b.Device.Info(); info.Provider != p.Name || b.Caps != p.Caps || (b.Wire == nil) != p.OverTCP || b.Virtual {
				return fmt.Errorf("%+v, caps %#x, wire %v", info, b.Caps, b.Wire)
			}
			if b.Wire == nil {
				return nil
			}
			return toUnknownQP(b)
		})
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestBenchesHaveSameLimits(t *testing.T) {
	random := make(map[bool]uint64)
	for virtual, l := range map[bool]conformance.Lab{false: lab(t, "softroce", NamespaceOptions{}), true: InSimulation(provider(t, "softroce"), SimOptions{})} {
		must.Do(t, l.WithBench(t.Context(), conformance.BenchSpec{Seed: 5, Setup: conformance.Setup{MTU: 1500}}, func(b *conformance.Bench) error {
			random[virtual] = b.Rand.Uint64()
			_, long := rawSend(b.Peers[0], b.Local[0], 1, string(make([]byte, 1500)))
			if err := b.Wire.Send(long); !errors.Is(err, conformance.ErrBenchCannot) || b.Virtual != virtual {
				return fmt.Errorf("virtual %v: %w", b.Virtual, err)
			}
			return nil
		}))
	}
	if random[true] != random[false] {
		t.Errorf("random numbers %v", random)
	}
}

func TestCleanUpClosesDevices(t *testing.T) {
	for name, body := range map[string]func(*conformance.Bench) error{"softroce": sendToPartner, "softiwarp": acceptConnect} {
		l := lab(t, name, NamespaceOptions{})
		var files [2]int
		for i := range files {
			for range 5 {
				if err := l.WithBench(t.Context(), conformance.BenchSpec{}, body); err != nil {
					t.Error(err)
				}
			}
			open := must.Get(os.ReadDir("/proc/self/fd"))(t)
			files[i] = len(open)
		}
		if files[1] > files[0]+2 {
			t.Errorf("%s: %v files are open", name, files)
		}
	}
}

func TestFailedCasesDoNotAffectNext(t *testing.T) {
	t.Parallel()
	l := lab(t, "softroce", NamespaceOptions{})
	canceled, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name string
		ctx  context.Context
		body func(*conformance.Bench) error
		is   func(error) bool
		want string
	}{
		{
			"a hang", t.Context(),
			func(b *conformance.Bench) error { _, err := b.Wire.Recv(verbs.Forever); return err },
			isHang, "it waits for a packet from the device",
		},
		{
			"a hang in the device", t.Context(),
			func(b *conformance.Bench) error {
				_, err := b.Device.WaitAsync(verbs.Forever)
				b.Sleep(time.Hour) // ends the goroutine after the case
				return err
			},
			isHang, "it waits in the device",
		},
		{
			"a hang of a task", t.Context(),
			func(b *conformance.Bench) error {
				return b.Go("stuck", func() error { b.Sleep(time.Hour); return nil }).Wait(verbs.Forever)
			},
			isHang, "task stuck has not ended",
		},
		{"a crash", t.Context(), func(*conformance.Bench) error { crash(); return nil }, conformance.IsViolation, "it crashed"},
		{
			"a crash of a task", t.Context(),
			func(b *conformance.Bench) error {
				b.Go("crash", func() error { crash(); return nil })
				_, err := b.Wire.Recv(verbs.Forever)
				return err
			},
			conformance.IsViolation, "it crashed",
		},
		{"a panic of the case", t.Context(), func(*conformance.Bench) error { panic("of the case") }, func(err error) bool { return !conformance.IsViolation(err) }, "of the case"},
		{
			"a task that still runs", t.Context(),
			func(b *conformance.Bench) error {
				b.Go("left", func() error { b.Sleep(time.Hour); return nil })
				return nil
			},
			func(err error) bool { return err != nil }, `"left"`,
		},
		{
			"a canceled context", canceled,
			func(b *conformance.Bench) error { cancel(); b.Sleep(time.Hour); return nil },
			func(err error) bool { return errors.Is(err, context.Canceled) }, "",
		},
		{"the link left down", t.Context(), func(b *conformance.Bench) error { return b.SetLink(false) }, func(err error) bool { return err == nil }, ""},
		{"an address left removed", t.Context(), func(b *conformance.Bench) error { return b.SetAddress(b.Local[0], false) }, func(err error) bool { return err == nil }, ""},
	} {
		// Only hangs need a short limit. Other cases must end by themselves.
		if l.opt.MaxTime = defaultMaxRealTime; strings.HasPrefix(c.name, "a hang") {
			l.opt.MaxTime = 500 * time.Millisecond
		}
		err := l.WithBench(c.ctx, conformance.BenchSpec{}, c.body)
		if !c.is(err) || c.want != "" && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		l.opt.MaxTime = defaultMaxRealTime
		if err := l.WithBench(t.Context(), conformance.BenchSpec{}, echo); err != nil {
			t.Errorf("after %s: %v", c.name, err)
		}
	}
	if n := len(l.free); n != 1 {
		t.Errorf("%d networks are free, want 1", n)
	}
}

func isHang(err error) bool {
	var h *conformance.HangError
	return errors.As(err, &h)
}

func TestParallelCases(t *testing.T) {
	l := lab(t, "softroce", NamespaceOptions{Parallel: 3})
	done := make(chan error)
	for range 9 {
		go func() { done <- l.WithBench(t.Context(), conformance.BenchSpec{}, echo) }()
	}
	for range 9 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(l.free); n == 0 || n > 3 {
		t.Errorf("%d networks, want 1 to 3", n)
	}
}

// Frames have the time at which they were sent, whenever the case reads them.
func TestFrameTimes(t *testing.T) {
	t.Parallel()
	must.Do(t, lab(t, "softroce", NamespaceOptions{}).WithBench(t.Context(), conformance.BenchSpec{}, func(b *conformance.Bench) error {
		u, err := newDatagrams(b, b.Device)
		if err != nil {
			return err
		}
		before := b.Now()
		if err := u.send("hello", b.Peers[0], 1); err != nil {
			return err
		}
		b.Sleep(time.Second)
		f, err := b.Wire.Recv(b.ResponseTimeout())
		if err != nil || f.At < before || f.At > b.Now()-500*time.Millisecond {
			return fmt.Errorf("sent after %v, seen at %v, now %v: %w", before, f.At, b.Now(), err)
		}
		return nil
	}))
}

func BenchmarkCaseInNamespaces(b *testing.B) {
	for name, body := range map[string]func(*conformance.Bench) error{"softroce": echo, "softiwarp": sendGarbage} {
		b.Run(name, func(b *testing.B) {
			l := lab(b, name, NamespaceOptions{})
			for b.Loop() {
				must.Do(b, l.WithBench(b.Context(), conformance.BenchSpec{}, body))
			}
		})
	}
}

// Unread packets of a case do not reach the device of the next one.
func TestUnreadPacketsDoNotReachNextCase(t *testing.T) {
	l := lab(t, "softroce", NamespaceOptions{})
	if n, err := onEachCPU(func() error { return nil }); err != nil || n < 1 {
		t.Fatal(n, err)
	}
	for range 20 {
		must.Do(t, l.WithBench(t.Context(), conformance.BenchSpec{}, func(b *conformance.Bench) error {
			for _, c := range b.Device.Counters() {
				if c.Name == "rcvd_pkts" && c.Value != 0 {
					return fmt.Errorf("%d packets before the first was sent", c.Value)
				}
			}
			_, packet := rawSend(b.Peers[0], b.Local[0], 77, "late")
			for range 50 {
				if err := b.Wire.Send(packet); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// stuckLink is a link that cannot be set up again.
type stuckLink struct{ linkController }

func (stuckLink) SetLink(string, bool) error { return agent.ErrHostCannot }

// A network whose link stays down is not used again, and the case has no verdict about the device.
func TestNetworkThatIsNotRestoredIsNotClean(t *testing.T) {
	for _, down := range []bool{false, true} {
		p := &netnsCase{net: new(benchNetwork), realTimeCase: realTimeCase{world: newRealWorld(), interfaceState: interfaceState{host: stuckLink{}, linkDown: down}}}
		clean, err := p.cleanUp()
		if clean == down || (err != nil) != down || errors.Is(err, conformance.ErrBenchCannot) {
			t.Errorf("link down %v: clean %v, %v", down, clean, err)
		}
	}
}
