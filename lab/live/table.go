package live

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// WriteTable prints a line for each NIC of the lab, with its addresses and its switch.
func (info *Info) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, h := range info.Topology.Hosts {
		for i, n := range h.NICs {
			name := h.Name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, n.Name, n.Addr(false), n.Addr(true), farEnd(info.Topology, h.Name, n.Name))
		}
	}
	return t.Flush()
}

// farEnd returns the other end of the cable of a NIC.
func farEnd(t *topology.Topology, host, nic string) string {
	p := topology.Port{Node: host, NIC: nic}
	c, ok := t.CableAt(p)
	if !ok {
		return ""
	}
	return "to " + c.Other(p).Node
}
