package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// New rejects an invalid Config with an error that names the field.
func TestNewRejectsInvalidConfig(t *testing.T) {
	good := Config{GIDs: RoCEv2GIDs(netip.MustParseAddr("fd00::1"))}
	bad := defaultCongestionParams(1e9)
	bad.G = 0
	type tc struct {
		name string
		edit func(*Config)
		says string
	}
	cases := []tc{
		{"no address", func(c *Config) { c.GIDs = nil }, "no GIDs"},
		{"link too small", func(c *Config) { c.LinkMTU = 255 + encapsulation }, "link MTU"},
		{"negative link MTU", func(c *Config) { c.LinkMTU = -1 }, "link MTU -1"},
		{"QP 1", func(c *Config) { c.FirstQPN = 1 }, "QP number 1 is reserved"},
		{"QP numbers beyond 24 bits", func(c *Config) { c.FirstQPN, c.Limits.QPs = 0xffff00, 0x100 }, "0xffffff"},
		{"negative window", func(c *Config) { c.WindowPackets = -1 }, "window of -1"},
		{"window of half the PSNs", func(c *Config) { c.WindowPackets = 1 << 23 }, "window of 8388608"},
		{"more regions than keys", func(c *Config) { c.Limits.MRs = nic.MaxEntries + 1 }, "memory regions"},
		{"negative CNP interval", func(c *Config) { c.CNPInterval = -1 }, "CNP interval"},
		{"congestion control without a gain", func(c *Config) { c.Congestion = bad }, "G is 0"},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Limits]()) {
		if f.Type.Kind() == reflect.Int {
			cases = append(cases, tc{"negative " + f.Name, func(c *Config) {
				reflect.ValueOf(&c.Limits).Elem().FieldByIndex(f.Index).SetInt(-1)
			}, "limit of " + f.Name})
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.edit(&cfg)
			_, err := New(cfg)
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error about %q", err, c.says)
			}
		})
	}
	for name, edit := range map[string]func(*Config){
		"only an address":         func(*Config) {},
		"the smallest link":       func(c *Config) { c.LinkMTU = 256 + encapsulation },
		"the last QP numbers":     func(c *Config) { c.FirstQPN, c.Limits.QPs = 0xfffeff, 0x100 },
		"the largest window":      func(c *Config) { c.WindowPackets = 1<<23 - 1 },
		"as many regions as keys": func(c *Config) { c.Limits.MRs = nic.MaxEntries },
	} {
		cfg := good
		edit(&cfg)
		if _, err := New(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Zero fields and limits get defaults.
func TestConfigDefaults(t *testing.T) {
	n := must.Get(New(Config{GIDs: RoCEv2GIDs(netip.MustParseAddr("10.0.0.1"))}))(t)
	c := n.Config()
	got := fmt.Sprint(c.LinkMTU, c.FirstQPN, c.WindowPackets, c.PKeys, c.CNPInterval, c.LineRateBps, c.Congestion.MaxRateBps, n.MTU().Bytes())
	if want := fmt.Sprint(1500, 0x11, 256, []uint16{0xffff}, 50*time.Microsecond, 100_000_000_000, 100_000_000_000, 1024); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	limits := reflect.ValueOf(c.Limits)
	for _, f := range reflect.VisibleFields(limits.Type()) {
		if limits.FieldByIndex(f.Index).IsZero() {
			t.Errorf("no default for %s", f.Name)
		}
	}
	cfg := Config{GIDs: c.GIDs, Limits: Limits{Limits: nic.Limits{QPs: 1, RdAtomic: 2}, MADsQueue: 3}}
	if got := must.Get(New(cfg))(t).Config().Limits; got.QPs != 1 || got.RdAtomic != 2 || got.MADsQueue != 3 || got.CQs != c.Limits.CQs {
		t.Errorf("limits %+v", got)
	}
	if p := n.Port(); p.State != verbs.PortActive || p.ActiveMTU != verbs.MTU1024 || p.GIDs != 1 || p.PKeys != 1 || p.MaxMsg != 1<<31 || p.RateBps != 100_000_000_000 {
		t.Errorf("port %+v", p)
	}
}

// Every counter is listed once, under a unique name.
func TestCountersAreListedByName(t *testing.T) {
	var n NIC
	fields := reflect.ValueOf(&n.Count).Elem()
	total := fields.NumField()
	for i := range total {
		fields.Field(i).SetUint(uint64(i + 1))
	}
	for _, shared := range []*uint64{&n.CQOverruns, &n.EventsLost} {
		total++
		*shared = uint64(total)
	}
	var names []string
	var values []uint64
	for _, counter := range n.Counters() {
		names = append(names, counter.Name)
		values = append(values, counter.Value)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != total {
		t.Errorf("%d names for %d counters", len(names), total)
	}
	slices.Sort(values)
	for i, v := range values {
		if v != uint64(i+1) {
			t.Fatalf("counter %d is not listed, or another is twice", i)
		}
	}
}
