package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
)

// judgedBy is what is said of a device with these defects, by a case and over a wire.
func judgedBy(t *testing.T, way DeviceWire, suite conformance.Protocol, id string, defects ...string) conformance.Result {
	t.Helper()
	_, d := farBy(t, way, defects...)
	return conformance.Judge(t.Context(), d, caseOf(t, suite, id), conformance.Options{})
}

func caseOf(t *testing.T, p conformance.Protocol, id string) *conformance.Case {
	t.Helper()
	for _, s := range judge.SuitesOf(p) {
		for i := range s.Cases {
			if s.Cases[i].ID == id {
				return &s.Cases[i]
			}
		}
	}
	t.Fatalf("no case %s", id)
	return nil
}

// A device without defects passes, a visible defect is found, and cases that UDP
// sockets cannot decide have no verdict.
func TestWireUDP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id, defect string
		want       conformance.Verdict
		says       string
	}{
		{"rc/psn/gap-naked-once", "", conformance.VerdictPass, ""},
		{"rc/psn/gap-naked-once", "AckPSNOff", conformance.VerdictFail, ""},
		{"pkt/ip/ttl-is-the-hop-limit-of-the-path", "", conformance.VerdictPass, ""},
		{"pkt/ip/ttl-is-the-hop-limit-of-the-path", "FixedHopLimit", conformance.VerdictFail, "hop limit"},
		{"pkt/ip/dscp-of-requests-and-answers-is-the-traffic-class", "", conformance.VerdictPass, ""},
		{"icrc/sent/ipv6-packets", "", conformance.VerdictPass, ""},
		{"pkt/udp/ipv6-checksum-is-left-out", "", conformance.VerdictUnsupported, "UDP checksum"},
		{"pkt/ip/ipv6-payload-length-ends-at-the-icrc", "", conformance.VerdictUnsupported, "lengths"},
		{"pkt/udp/ipv6-padding-of-the-frame-ignored", "", conformance.VerdictUnsupported, "after the packet"},
		{"pkt/addr/packet-from-another-host-dropped", "", conformance.VerdictUnsupported, "1 addresses"},
	} {
		var defects []string
		if c.defect != "" {
			defects = append(defects, c.defect)
		}
		r := judgedBy(t, WireUDP, conformance.RoCE, c.id, defects...)
		if r.Verdict != c.want || c.says != "" && !strings.Contains(r.Err.Error(), c.says) {
			t.Errorf("%s with %q: %s (%v), want %s because of %q", c.id, c.defect, r.Verdict, r.Err, c.want, c.says)
		}
	}
}

// The user-space TCP exchanges the same data, shows segments, and can request a
// smaller MSS.
func TestWireSegments(t *testing.T) {
	t.Parallel()
	_, d := farBy(t, WireSegments)
	for _, c := range []realCase{{"garbage", garbage}, {"dialed", dialed}} {
		if err := d.WithBench(t.Context(), conformance.BenchSpec{Case: "some/" + c.name}, c.body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	short := conformance.BenchSpec{Case: "some/short", Setup: conformance.Setup{MTU: 1500}}
	err := d.WithBench(t.Context(), short, func(b *conformance.Bench) error {
		if tcp, err := b.RawTCP(); err != nil || tcp != b.Streams || b.MTU != 1500 {
			t.Errorf("%v, %v, MTU %d", tcp, err, b.MTU)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := d.WithBench(t.Context(), conformance.BenchSpec{Setup: conformance.Setup{MTU: 1 << 15}}, garbage); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("longer packets than the cable carries: %v", err)
	}
	for _, c := range []struct {
		id, defect string
		want       conformance.Verdict
	}{
		{"mpa/segment/what-is-missing-is-waited-for", "", conformance.VerdictPass},
		{"mpa/segment/nothing-before-the-fpdu-is-whole", "PlacesEarly", conformance.VerdictFail},
		{"mpa/segment/begins-with-an-fpdu", "", conformance.VerdictUnsupported}, // it needs IPv4
	} {
		var defects []string
		if c.defect != "" {
			defects = append(defects, c.defect)
		}
		t.Run(c.id+"/"+c.defect, func(t *testing.T) {
			t.Parallel()
			if r := judgedBy(t, WireSegments, conformance.IWARP, c.id, defects...); r.Verdict != c.want {
				t.Errorf("%s (%v), want %s", r.Verdict, r.Err, c.want)
			}
		})
	}
}

// Cases that send raw TCP segments run in namespaces. The conform step of CI proves that they
// fail on mutants.
func TestSegmentsInNamespaces(t *testing.T) {
	t.Parallel()
	lab := lab(t, "softiwarp", NamespaceOptions{Parallel: atOnce})
	for _, id := range []string{
		"mpa/segment/what-is-missing-is-waited-for", "mpa/segment/repeated-is-delivered-once", "mpa/segment/repeated-write-is-placed-once",
		"mpa/segment/cut-joined-and-mixed-by-the-network", "mpa/segment/sequence-numbers-wrap", "mpa/marker/sequence-numbers-wrap",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			if r := conformance.Judge(t.Context(), lab, caseOf(t, conformance.IWARP, id), conformance.Options{Seed: 1}); r.Verdict != conformance.VerdictPass {
				t.Errorf("%s (%v)", r.Verdict, r.Err)
			}
		})
	}
}
