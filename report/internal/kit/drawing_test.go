package kit

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// testPainter colours one host's cables.
type testPainter struct{ bad string }

func (l testPainter) Cable(c *topology.Cable) Part {
	if c.A.Node == l.bad {
		return Part{State: Lossy, Label: "5 lost", Title: "a\nb"}
	}
	return Part{}
}

func (l testPainter) Host(h *topology.Host) Part { return Part{Title: h.Name} }

// count counts the elements of a well-formed drawing by class.
func count(t *testing.T, d Drawing) map[string]int {
	t.Helper()
	n := map[string]int{}
	dec := xml.NewDecoder(strings.NewReader(string(d.SVG)))
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%v in %s", err, d.SVG)
		}
		if e, ok := tok.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					n[a.Value]++
				}
			}
		}
	}
}

func TestDrawHasEveryHostSwitchAndCable(t *testing.T) {
	for _, c := range []struct {
		name                    string
		t                       *topology.Topology
		hosts, switches, cables int
		lossy, labels, maxWidth int
	}{
		{"pair", pairOf(1), 2, 0, 1, 1, 1, 560},
		{"pair with two rails", pairOf(2), 2, 0, 2, 2, 2, 560},
		{"star", starOf(6, 1), 6, 1, 6, 1, 1, 560},
		{"star of 64", starOf(64, 1), 64, 1, 64, 1, 0, 560},
		{"two rails", starOf(8, 2), 8, 2, 16, 2, 2, 560},
		{"fat tree", fatTreeOf(16, 4, 2), 16, 6, 24, 1, 0, 1040},
		{"fat tree of 64", fatTreeOf(64, 8, 4), 64, 12, 96, 1, 0, 1040},
	} {
		d := Draw(c.t, testPainter{"host0"})
		n := count(t, d)
		if n["h fine"] != c.hosts || n["sw"] != c.switches || n["e fine"]+n["e lossy"] != c.cables || n["e lossy"] != c.lossy || n["el lossy"] != c.labels {
			t.Errorf("%s: %v", c.name, n)
		}
		if d.Width > c.maxWidth || d.Height > 420 {
			t.Errorf("%s: %d by %d", c.name, d.Width, d.Height)
		}
	}
}

// Hosts are merged, except those with an impaired cable.
func TestManyHostsAreMerged(t *testing.T) {
	for _, fabric := range []*topology.Topology{fatTreeOf(1000, 10, 4), starOf(300, 1)} {
		g := newGraph(fabric, testPainter{"host123"})
		g.mergeHosts(MaxHosts)
		merged, named := 0, []string{}
		for _, h := range g.hosts {
			merged += h.mergedHosts
			if h.mergedHosts == 0 {
				named = append(named, h.name)
			}
		}
		if merged != len(fabric.Hosts)-1 || fmt.Sprint(named) != "[host123]" {
			t.Errorf("%d hosts merged, %v mustTopology", merged, named)
		}
		if d := Draw(fabric, testPainter{"host123"}); len(d.SVG) > 40_000 || count(t, d)["e lossy"] != 1 {
			t.Errorf("%d bytes, %v", len(d.SVG), count(t, d))
		}
	}
	// If all hosts are down, the number of drawn hosts is limited.
	if n := count(t, Draw(starOf(300, 1), allDown{})); n["h down"] > MaxHosts+1 {
		t.Errorf("%v", n)
	}
}

type allDown struct{}

func (allDown) Cable(*topology.Cable) Part { return Part{State: Down} }
func (allDown) Host(*topology.Host) Part   { return Part{State: Down} }

func TestNodesDoNotOverlap(t *testing.T) {
	for name, f := range map[string]*topology.Topology{
		"star 3": starOf(3, 1), "star 16": starOf(16, 1), "star 64": starOf(64, 1), "star 96": starOf(96, 1),
		"tree 64": fatTreeOf(64, 8, 4), "tree 96": fatTreeOf(96, 12, 8), "rails": starOf(8, 4), "rails 64": starOf(64, 2),
	} {
		g := newGraph(f, testPainter{})
		g.mergeHosts(MaxHosts)
		if len(g.switches) == 1 {
			g.layoutRing()
		} else {
			g.layoutRows()
		}
		all := append(append([]*node{}, g.hosts...), g.switches...)
		for i, a := range all {
			if a.x < 8 || a.x > g.w-8 || a.y < 8 || a.y > g.h-8 {
				t.Errorf("%s: %s at %.0f, %.0f of %.0f, %.0f", name, a.name, a.x, a.y, g.w, g.h)
			}
			for _, b := range all[i+1:] {
				if math.Abs(a.x-b.x) < 10.5 && math.Abs(a.y-b.y) < 10.5 {
					t.Errorf("%s: %s and %s overlap", name, a.name, b.name)
				}
			}
		}
	}
}

func TestDrawEscapesNames(t *testing.T) {
	evil := `</svg><script>alert(1)</script>"'&` + strings.Repeat("long", 50)
	f := starOf(2, 1)
	f.Hosts[0].Name, f.Switches[0].Name = evil, evil+"2"
	f.Cables[0].A.Node, f.Cables[0].B.Node, f.Cables[1].B.Node = evil, evil+"2", evil+"2"
	d := Draw(f, hostilePainter{evil})
	count(t, d) // checks that it is well-formed
	if strings.Contains(string(d.SVG), "<script") || strings.Contains(string(d.SVG), "longlonglonglonglong</text>") {
		t.Errorf("%s", d.SVG)
	}
}

type hostilePainter struct{ text string }

func (l hostilePainter) Cable(*topology.Cable) Part {
	return Part{State: Down, Label: "x<", Title: l.text}
}
func (l hostilePainter) Host(*topology.Host) Part { return Part{Title: l.text} }

func mustTopology(t topology.Topology, err error) *topology.Topology {
	if err != nil {
		panic(err)
	}
	return &t
}

// pairOf returns two hosts on cables.
func pairOf(rails int) *topology.Topology {
	return mustTopology(topology.Pair(topology.Options{Rails: rails}))
}

// starOf returns hosts on one switch per rail.
func starOf(hosts, rails int) *topology.Topology {
	return mustTopology(topology.Star(hosts, topology.Options{Rails: rails}))
}

// fatTreeOf returns hosts on leaves, and every leaf on every spine.
func fatTreeOf(hosts, leaves, spines int) *topology.Topology {
	return mustTopology(topology.FatTree(leaves, spines, hosts, topology.Options{}))
}

func TestLinearScaleHasRoundMarks(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   []float64
	}{
		{[]float64{0}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{[]float64{3, 99.9}, []float64{0, 20, 40, 60, 80, 100}},
		{[]float64{-3, 14}, []float64{-5, 0, 5, 10, 15}},
		{[]float64{0.31}, []float64{0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35}},
	} {
		s := Linear(c.values, 100, -100)
		got := s.Marks()
		same := len(got) == len(c.want)
		for i := 0; same && i < len(got); i++ {
			same = math.Abs(got[i]-c.want[i]) < 1e-9
		}
		if !same || s.Position(got[0]) != 100 || math.Abs(s.Position(got[len(got)-1])) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestLineChartOmitsTextsWithoutRoom(t *testing.T) {
	c := LineChart{Left: 50, Width: 200, Height: 100, YText: func(float64) string { return "" }, Y: func(start, length float64) Scale { return Linear([]float64{1}, start, length) }}
	for x := range 20 {
		c.Ticks = append(c.Ticks, XTick{X: float64(x), Text: fmt.Sprintf("tick %d", x)})
	}
	drawing := string(c.Draw())
	if n := strings.Count(drawing, ">tick "); n < 2 || n > 4 || !strings.Contains(drawing, ">tick 0<") {
		t.Errorf("%d texts of 40 units in 200", n)
	}
}
