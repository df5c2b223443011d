package lab

import (
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/netns"
)

// ProgramCapabilities returns which programs of others fabrictest finds.
func ProgramCapabilities() (found []netns.Capability) {
	for _, p := range []struct{ names, purpose, cure string }{
		{"tshark", "a second opinion on captures", "Debian: apt install tshark"},
		{"chromium google-chrome", "the tests of the report page", "Debian: apt install chromium"},
	} {
		c := netns.Capability{Name: strings.Fields(p.names)[0], For: p.purpose, State: netns.No, Reason: "it is not on PATH", Cure: p.cure}
		for _, name := range strings.Fields(p.names) {
			if _, err := exec.LookPath(name); err == nil {
				c.State, c.Reason, c.Cure = netns.Yes, "", ""
			}
		}
		found = append(found, c)
	}
	return found
}

// WriteCapabilities prints a line for each capability, with the cure for those that are
// missing, in colour for a terminal.
func WriteCapabilities(w io.Writer, found []netns.Capability, coloured bool) error {
	colour := stateText(coloured)
	width := 0
	for _, c := range found {
		width = max(width, len(c.Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-*s  %s\n", colour(netns.Yes), width, "simulation", "every scenario, on any machine")
	for _, c := range found {
		fmt.Fprintf(&b, "%s  %-*s  %s\n", colour(c.State), width, c.Name, c.For)
		indent := strings.Repeat(" ", len("limited")+2+width+2)
		if c.Reason != "" {
			fmt.Fprintf(&b, "%s%s\n", indent, textfmt.PrintableLine(c.Reason))
		}
		if c.Cure != "" {
			fmt.Fprintf(&b, "%sto have it: %s\n", indent, textfmt.PrintableLine(c.Cure))
		}
	}
	if why := netns.Available(); why != nil {
		fmt.Fprintf(&b, "\nScenarios run in simulation only: %v\n", why)
	} else {
		b.WriteString("\nScenarios run in simulation and in network namespaces.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stateText returns a function that pads a state, and colours it.
func stateText(coloured bool) func(netns.State) string {
	plain := func(s netns.State) string { return fmt.Sprintf("%-*s", len("limited"), s) }
	if !coloured {
		return plain
	}
	codes := map[netns.State]string{netns.Yes: "32", netns.No: "31", netns.Limited: "33"}
	return func(s netns.State) string { return "\x1b[" + codes[s] + "m" + plain(s) + "\x1b[0m" }
}
