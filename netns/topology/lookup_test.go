package topology_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
)

func TestMatchSelectsPorts(t *testing.T) {
	top := must.Get(topology.FatTree(2, 2, 3, topology.Options{Rails: 2}))(t)
	for pattern, want := range map[string]string{
		"host1":         "host1/rdma0 host1/rdma1",
		"host1/rdma0":   "host1/rdma0",
		"host*/rdma1":   "host0/rdma1 host1/rdma1 host2/rdma1",
		"*":             "host0/rdma0 host0/rdma1 host1/rdma0 host1/rdma1 host2/rdma0 host2/rdma1",
		"host[12]/*1":   "host1/rdma1 host2/rdma1",
		"spine0-rail1":  "spine0-rail1/port0 spine0-rail1/port1",
		"spine?-rail0":  "spine0-rail0/port0 spine1-rail0/port0 spine0-rail0/port1 spine1-rail0/port1",
		"leaf*0/port0":  "leaf0-rail0/port0 leaf1-rail0/port0",
		"leaf0-rail0/*": "leaf0-rail0/port0 leaf0-rail0/port1 leaf0-rail0/port2 leaf0-rail0/port3",
	} {
		ports, err := top.Match(pattern)
		if got := strings.Trim(fmt.Sprint(ports), "[]"); err != nil || got != want {
			t.Errorf("%q matches %s (%v), want %s", pattern, got, err, want)
		}
	}
	for pattern, want := range map[string]string{
		"":              "a node, or a node and a port",
		"/":             "a node, or a node and a port",
		"host1/":        "a node, or a node and a port",
		"host1/rdma0/x": "a node, or a node and a port",
		"host[":         "syntax error",
		"host7":         "the fabric has host0/rdma0 to host2/rdma1, leaf0-rail0",
	} {
		if _, err := top.Match(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", pattern, err, want)
		}
	}
}

func TestFindPort(t *testing.T) {
	top := must.Get(topology.Star(2, topology.Options{}))(t)
	for _, name := range []string{"host1", "host1/rdma0"} {
		p, err := top.FindPort(name)
		if err != nil || p.String() != "host1/rdma0" {
			t.Errorf("%q is %v (%v)", name, p, err)
		}
		c, ok := top.CableAt(p)
		if far := c.Other(p); !ok || far.String() != "switch0/port1" || !c.Other(far).Same(p) {
			t.Errorf("the cable at %v is %v", p, c)
		}
	}
	if _, err := top.FindPort("host*"); err == nil {
		t.Error("FindPort accepted a pattern")
	}
	if n := len(top.CablesOf("switch0")); n != 2 {
		t.Errorf("switch0 has %d cables, want 2", n)
	}
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"host*", "host1/rdma0", "[", "*/*", "leaf0/port?"} {
		f.Add(s)
	}
	top := must.Get(topology.FatTree(2, 2, 4, topology.Options{}))(f)
	f.Fuzz(func(t *testing.T, pattern string) {
		ports, err := top.Match(pattern)
		if (err == nil) != (len(ports) > 0) {
			t.Fatalf("%q: %v, %v", pattern, ports, err)
		}
		for _, p := range ports {
			if _, ok := top.CableAt(p); !ok {
				t.Fatalf("%q matches %v, which has no cable", pattern, p)
			}
		}
	})
}
