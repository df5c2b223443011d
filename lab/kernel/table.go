package kernel

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable prints the lab and a line for each guest.
func (info *Info) WriteTable(w io.Writer) error {
	how := "emulated processors"
	if info.Accel == KVM {
		how = "KVM"
	}
	fmt.Fprintf(w, "Kernel lab %s is up: Linux %s, %s, process %d.\n", info.Name, info.Release, how, info.PID)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  host\t%v\t%v\t\n", HostIPv4, HostIPv6)
	for _, g := range info.Guests {
		state := fmt.Sprintf("ready after %.1f s", g.BootSecs)
		if !g.Up {
			state = g.DownReason
		}
		if link := g.Link.String(); link != "" {
			state += "; " + link
		}
		fmt.Fprintf(t, "  guest %d\t%v\t%v\t%s\n", g.ID, g.IPv4, g.IPv6, state)
	}
	return t.Flush()
}
