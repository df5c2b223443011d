package nics

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/verbs"
)

// Scenarios are skipped by the capabilities of the provider: they must be those of
// its devices.
func TestProviderCapsMatchDevices(t *testing.T) {
	for _, c := range setups() {
		p := c.Provider
		w := sim.New(sim.Config{})
		defer w.Close()
		n := must.Get(sim.NewNet(w, sim.NetConfig{}))(t)
		addr := netip.MustParseAddr("fd00::1")
		port, err := n.Attach(sim.PortConfig{Name: "host0", Addrs: []netip.Addr{addr}, Link: sim.LinkConfig{RateBps: 1e9, Latency: time.Microsecond, MTU: 4200}})
		if err != nil {
			t.Fatal(err)
		}
		o := must.Get(p.NewOpener(c.Setup))(t)
		d := must.Get(o.InWorld(w, port, NICConfig{Name: "host0/rdma0", Addr: addr, LineRateBps: 1e9}))(t)
		info, counters := d.Info(), d.Counters()
		attr := must.Get(d.QueryDevice())(t)
		if info.Provider != p.Name || info.Transport != p.Transport || attr.Caps != o.Caps() || info.Name != "host0/rdma0" {
			t.Errorf("%s: the device reports %+v and caps %#x, want %#x", p.Name, info, attr.Caps, o.Caps())
		}
		if p.OverTCP == (p.Dissector != nil) {
			t.Errorf("%s: streams %v, dissector %v", p.Name, p.OverTCP, p.Dissector)
		}
		if counted := slices.ContainsFunc(counters, func(c verbs.Counter) bool { return c.Name == p.RetransmitCounter }); counted != (p.RetransmitCounter != "") {
			t.Errorf("%s: no counter %q among %v", p.Name, p.RetransmitCounter, counters)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// setup is a provider and one Setup of its NICs.
type setup struct {
	*Provider
	Setup
}

func setups() (all []setup) {
	for _, p := range All() {
		all = append(all, setup{p, Setup{}})
		if p.ReliableCaps != 0 {
			all = append(all, setup{p, Setup{Options: Options{"reliable": true}}})
		}
	}
	return all
}

func TestFindProvider(t *testing.T) {
	p, err := Find("")
	if err != nil || p.Name != Default {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := Find("mlx5"); err == nil || !strings.Contains(err.Error(), "there are "+strings.Join(Names(), ", ")) {
		t.Error(err)
	}
}

// A defect that two providers have does the same in both.
func TestDefectNamesAreUnambiguous(t *testing.T) {
	seen := map[string]Defect{}
	for _, p := range All() {
		for _, q := range p.AllDefects() {
			if q.Does == "" {
				t.Errorf("%s has no description", q.Name)
			}
			spec := strings.NewReplacer("=NAME", "="+p.counters()[0].Name, "=N", "=3").Replace(q.Name)
			if err := p.CheckDefect(spec); err != nil {
				t.Errorf("%s is listed by %s and rejected: %v", q.Name, p.Name, err)
			}
			if other, twice := seen[q.Name]; twice && other.Does != q.Does {
				t.Errorf("%s is two defects: %q and %q", q.Name, other.Does, q.Does)
			}
			seen[q.Name] = q
		}
	}
	if all := AllDefects(); len(all) != len(seen) {
		t.Errorf("%d defects listed, want %d", len(all), len(seen))
	}
}

func TestRoCEDefectsAreDocumented(t *testing.T) {
	docs := must.Get(os.ReadFile("../../docs/defects.md"))(t)
	for _, q := range softRoCE().Defects {
		imitates := q.Imitates
		if imitates == "" {
			imitates = "–"
		}
		if want := "| `" + defectName(q.Name) + "` | " + imitates + " |"; !strings.Contains(string(docs), want) {
			t.Errorf("docs/defects.md has no line %q", want)
		}
	}
}

// Defects of verbs apply to every provider, or to that of the driver that they imitate;
// alone or with other defects.
func TestVerbDefects(t *testing.T) {
	for _, p := range All() {
		for name, has := range map[string]bool{"WCLost": true, "NoQPEvents": p.Kernel.Name == "rxe", "RTRIgnored": p.Kernel.Name == "siw"} {
			o, err := p.NewOpener(Setup{Defects: []string{name}})
			if _, wrapped := o.(*defectiveVerbsOpener); wrapped != has || (err == nil) != has || (p.CheckDefect(name) == nil) != has {
				t.Errorf("%s with %s: %T, %v", p.Name, name, o, err)
			}
		}
	}
	o, err := softRoCE().NewOpener(Setup{Defects: []string{"WCLost", "SQDNoResume"}})
	if err != nil || !o.(*defectiveVerbsOpener).defects.WCLost || !o.(*defectiveVerbsOpener).Opener.(*stackOpener[softroce.Config, roceOptions]).cfg.NIC.Policy.ResumeOnPost {
		t.Errorf("%+v, %v", o, err)
	}
	var unknown *UnknownDefectError
	if _, err := softRoCE().NewOpener(Setup{Defects: []string{"WCLost", "Nonsense"}}); !errors.As(err, &unknown) || unknown.Name != "Nonsense" {
		t.Error(err)
	}
}

func TestCheckDefectErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"NoSuchDefect":        `no defect "NoSuchDefect"; 'fabrictest list defects' lists all`,
		"cm.NoSuchDefect":     `no defect "cm.NoSuchDefect"`,
		"cm.StopAfterConns=3": "takes no number",
		"AckCompletesRead=1":  "takes no number",
		"NoFence=1":           "takes no number",
		"cm.DetourLocal":      `no defect "cm.DetourLocal"`,
		"":                    `no defect ""`,
		"CounterStuck":        "needs the name of a counter, for example CounterStuck=sent_pkts",
		"CounterStuck=sheep":  `no device has a counter "sheep"`,
		"Memory":              `no defect "Memory"`,
	} {
		err := CheckDefect(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", spec, err, want)
		}
		var unknown *UnknownDefectError
		if strings.HasPrefix(want, "no defect") != errors.As(err, &unknown) {
			t.Errorf("%q: %T", spec, err)
		}
	}
	for name, p := range map[string]*Provider{"AckSkipsRead": softIWARP(), "NoFence": softRoCE(), "CounterStuck=sent_pkts": All()[1]} {
		var foreign *ForeignDefectError
		if err := p.CheckDefect(name); !errors.As(err, &foreign) || !slices.Equal(foreign.Of, NamesWith(func(p *Provider) bool { return p.CheckDefect(name) == nil })) {
			t.Errorf("%s with %s: %v", name, p.Name, err)
		}
		if err := CheckDefect(name); err != nil {
			t.Error(err)
		}
	}
}

func TestRoCESetups(t *testing.T) {
	o := must.Get(roceStack.newOpener(softRoCE(), Setup{
		Defects: []string{"AckCompletesRead", "cm.IgnoreCommEst"},
		Options: Options{"icrc": false, "rate_control": false, "max_cm_connections": 16},
	}))(t)
	cfg := o.deviceConfig(&NICConfig{Name: "x", LineRateBps: 7})
	if !cfg.NIC.Policy.AckCompletesReads || !cfg.CM.RequireRTU || cfg.NIC.ICRC != engine.ICRCOffloaded ||
		cfg.NIC.Congestion.MinRateBps < 1e12 || cfg.CM.MaxConns != 16 || cfg.Name != "x" || cfg.NIC.LineRateBps != 7 {
		t.Errorf("%+v", cfg)
	}
	if err := cfg.NIC.Congestion.Validate(); err != nil {
		t.Error(err)
	}
}

func TestIWARPSetups(t *testing.T) {
	o := must.Get(iwarpStack.newOpener(softIWARP(), Setup{Defects: []string{"NoFence"}, Options: Options{"markers": true, "client_server": true}}))(t)
	if cfg := o.deviceConfig(&NICConfig{Name: "x"}); !cfg.NIC.MPA.Markers || !cfg.ClientServer || cfg.NIC.Policy.MPA.ResponderSends != mpa.AfterReply || cfg.Name != "x" {
		t.Errorf("%+v", cfg)
	}
}

func TestDatagramSetups(t *testing.T) {
	o := must.Get(datagramStack.newOpener(datagramIWARP(), Setup{Options: Options{
		"reliable": true, "isolate_peers": true, "retry_timeout": 8 * time.Millisecond, "retry_total": 64 * time.Millisecond, "rnr_total": time.Second,
	}}))(t)
	cfg := o.deviceConfig(&NICConfig{Name: "x"})
	if tm := cfg.NIC.Timing; tm.MaxTimeout != 8*time.Millisecond || tm.FirstTimeout != 8*time.Millisecond || tm.MinTimeout != 8*time.Millisecond || tm.GiveUp != 64*time.Millisecond || tm.BusyLimit != time.Second {
		t.Errorf("%+v", tm)
	}
	if !cfg.QP.Reliable || !cfg.QP.Isolate || cfg.Name != "x" {
		t.Errorf("%+v", cfg)
	}
	if o, err := datagramStack.newOpener(datagramIWARP(), Setup{}); err != nil || o.cfg.QP.Reliable || o.cfg.QP.Isolate || o.cfg.NIC.Timing != (rd.Timing{}) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestUnknownOptionsAreRejected(t *testing.T) {
	for _, p := range All() {
		_, err := p.NewOpener(Setup{Options: Options{"speed": true}})
		if want := p.Title + " has no option speed; it has " + strings.Join(p.Options, ", "); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		_, err = p.NewOpener(Setup{Options: Options{p.Options[0]: "fast"}})
		if err == nil || !strings.Contains(err.Error(), "options of "+p.Title) {
			t.Errorf("%s: %s with a text: %v", p.Name, p.Options[0], err)
		}
	}
}

func TestRetryTimesOfScenariosAreValid(t *testing.T) {
	for _, b := range []datagramOptions{
		{RetryTimeout: 8192, RetryTotal: 8192}, {RetryTimeout: time.Millisecond, RetryTotal: 8 * time.Millisecond}, {RetryTimeout: time.Hour, RetryTotal: 8 * time.Hour}, {RNRTotal: time.Microsecond},
	} {
		if _, err := rd.New(rd.Config{Secret: [16]byte{1}, Timing: b.timing()}); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
		if tm := b.timing(); b.RetryTimeout > 0 && tm.GiveUp/tm.MaxTimeout != b.RetryTotal/b.RetryTimeout {
			t.Errorf("%+v: gives up after %v, and retransmits after %v", b, tm.GiveUp, tm.MaxTimeout)
		}
	}
}

// The skeleton of docs/adding-a-provider.md is skeleton_test.go, and works.
func TestDocumentedSkeleton(t *testing.T) {
	doc := must.Get(os.ReadFile("../../docs/adding-a-provider.md"))(t)
	code := must.Get(os.ReadFile("skeleton_test.go"))(t)
	if !strings.Contains(string(doc), "```go\n"+string(code)+"```") {
		t.Error("docs/adding-a-provider.md differs from skeleton_test.go")
	}
	for options, want := range map[*Options]bool{{}: true, {"markers": false}: false} {
		o, err := markerIWARP().NewOpener(Setup{Options: *options})
		if err != nil || o.(*markerOpener).cfg.NIC.MPA.Markers != want {
			t.Errorf("%v: %+v, %v", *options, o, err)
		}
	}
	w := sim.New(sim.Config{})
	defer w.Close()
	d := must.Get(markerIWARP().openSample(w))(t)
	if p := d.Info().Provider; p != "markeriwarp" {
		t.Errorf("the provider is %s", p)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestFromEnvReadsEnvVars(t *testing.T) {
	fabric := must.Get(topology.Star(3, topology.Options{Rails: 2}))(t)
	for i, h := range fabric.Hosts {
		for _, v := range EnvVars(&fabric, h) {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(name, value)
		}
		got, err := FromEnv()
		if err != nil || got.Name != h.Name || len(got.NICs) != 2 {
			t.Fatalf("%s: %+v, %v", h.Name, got, err)
		}
		for k, n := range got.NICs {
			want := h.NICs[k]
			if n.Name != want.Name || n.IPv6 != want.Addr(false) || n.IPv4 != want.Addr(true) {
				t.Errorf("%s: %+v, want %+v", h.Name, n, want)
			}
			if len(n.IPv6Peers) != 3 || n.IPv6Peers[i] != n.IPv6 || !slices.Contains(n.IPv4Peers, n.IPv4) {
				t.Errorf("%s: peers %v and %v", h.Name, n.IPv6Peers, n.IPv4Peers)
			}
		}
	}
}

func TestFromEnvOutsideOfFabric(t *testing.T) {
	t.Setenv(hostVar, "")
	if _, err := FromEnv(); !errors.Is(err, ErrNoFabric) {
		t.Error(err)
	}
	for name, value := range map[string]string{hostVar: "host0", nicsVar: "rdma0", "FABRICTEST_RDMA0_IPV6": "fd00::x"} {
		t.Setenv(name, value)
	}
	if _, err := FromEnv(); err == nil || !strings.Contains(err.Error(), "FABRICTEST_RDMA0_") {
		t.Errorf("an invalid address: %v", err)
	}
}
