package nics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const smallPlatform = `
version: 1
name: small
title: A platform
provider: softroce
parameters:
  - {name: host.control_ns, value: 1000, source: assumed}
  - {name: host.post_ns, value: 150.4, source: assumed}
  - {name: host.poll_ns, value: 50, source: assumed}
  - {name: link.rate_gbps, value: 12.8, source: assumed}
`

func TestShippedPlatformsAreValid(t *testing.T) {
	if len(PlatformNames()) == 0 {
		t.Fatal("no platform")
	}
	for _, name := range PlatformNames() {
		if p := must.Get(LoadPlatform(name))(t); p.Name != name {
			t.Errorf("the platform in %s.yaml is called %s", name, p.Name)
		}
	}
}

func TestEveryParameterChangesAPlatform(t *testing.T) {
	for _, name := range ParameterNames() {
		p := new(Platform)
		must.Do(t, p.Set(Parameter{Name: name, Value: 4096, Source: "test"}))
		if host, nic, link := (Platform{}).Host, (Platform{}).NIC, (Platform{}).Link; p.Host == host && p.NIC == nic && p.Link == link && p.MemoryBps == 0 {
			t.Errorf("%s changes nothing", name)
		}
	}
}

func TestPlatformsOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "small.yaml")
	must.Do(t, os.WriteFile(file, []byte(smallPlatform), 0o600))
	p := must.Get(LoadPlatform(file))(t)
	if p.Host.Post != 150*time.Nanosecond || p.Link.RateBps != 12_800_000_000 {
		t.Errorf("%+v", p)
	}
}

func TestInvalidPlatformsAreRefused(t *testing.T) {
	for change, want := range map[string]string{
		"version: 1 => version: 2":                             "version 2: give 1",
		"name: small => nam: small":                            "nam not found",
		"title: A platform => title: ''":                       "name or title is missing",
		"provider: softroce => provider: softrose":             "softrose",
		"host.post_ns => host.pots_ns":                         `no parameter is called "host.pots_ns"; did you mean host.post_ns`,
		"host.poll_ns => host.post_ns":                         "host.post_ns is given twice",
		"value: 50, source: assumed => value: 50, source: ''":  "host.poll_ns has no source",
		"value: 50, source: assumed => value: -1, source: a":   "host.poll_ns: -1 is not between",
		"value: 50, source: assumed => value: .nan, source: a": "host.poll_ns: NaN is not between",
		"value: 12.8 => value: 0":                              "link.rate_gbps must be given",
	} {
		from, to, _ := strings.Cut(change, " => ")
		text := strings.Replace(smallPlatform, from, to, 1)
		if _, err := ParsePlatform([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}

// Registration costs compare as publications say, and are those of whole pages.
func TestRegistrationCostsAreAsPublished(t *testing.T) {
	const page = 4096
	for _, name := range PlatformNames() {
		h := must.Get(LoadPlatform(name))(t).Host
		for _, c := range []verbs.LinearCost{h.Register, h.Deregister} {
			if c.PicosecondsPerByte > 0 && (c.Of(1) != c.Of(page) || c.Of(page) == c.Of(page+1)) {
				t.Errorf("%s: %v for 1 B, %v for a page, %v for a byte more", name, c.Of(1), c.Of(page), c.Of(page+1))
			}
		}
	}
	costs := func(name string, bytes int) (register, deregister time.Duration) {
		h := must.Get(LoadPlatform(name))(t).Host
		return h.Register.Of(bytes), h.Deregister.Of(bytes)
	}
	for _, bytes := range []int{1, page, 64 << 10, 1 << 20} {
		iwarp, iwarpDeregister := costs("r805-iwarp-ne020", bytes)
		ib, ibDeregister := costs("r805-ib-connectx-ddr", bytes)
		if myrinet, _ := costs("r805-myri-10g-mxoe", bytes); myrinet >= iwarp || myrinet >= ib {
			t.Errorf("%d B: Myrinet registers in %v, not cheaper than iWARP (%v) and IB (%v)", bytes, myrinet, iwarp, ib)
		}
		if iwarp <= iwarpDeregister || bytes <= page && ib >= ibDeregister || bytes == 1<<20 && ib < 2*ibDeregister {
			t.Errorf("%d B: iWARP %v and %v, IB %v and %v", bytes, iwarp, iwarpDeregister, ib, ibDeregister)
		}
	}
}
