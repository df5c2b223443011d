package live

import (
	"fmt"
	"io"
	"strings"
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

// WriteHints prints the lab, and commands of program to use it.
func (info *Info) WriteHints(w io.Writer, program string) error {
	if err := info.WriteTable(w); err != nil {
		return err
	}
	lab := ""
	if info.Name != DefaultName {
		lab = " --lab " + info.Name
	}
	_, err := fmt.Fprintf(w, `
Lab %s is up, process %d.

    %[3]s lab exec%[4]s host0 -- bash
    %[3]s lab set%[4]s host1 loss=5%%
    %[3]s lab down%[5]s
`, info.Name, info.PID, program, lab, strings.TrimPrefix(lab, " --lab"))
	return err
}
