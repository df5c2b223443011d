package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/netns"
)

func newDoctorCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Print what this machine supports, and how to get the rest",
		Long: `Try what this machine can do and say how to get the rest. Simulation works
everywhere; network namespaces need a kernel that lets this user have them. What
is tried is done in namespaces that are gone when the command ends.

Exit codes: 0 namespaces work, 1 they do not.`,
		Example: `  fabrictest doctor
  fabrictest doctor --json | jq '.[] | select(.state != "yes")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := append(append(netns.Probe(), kernel.Capabilities()...), programs()...)
			var err error
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				err = diagnose(cmd.OutOrStdout(), found)
			}
			if err == nil && netns.Available() != nil {
				return errFailed
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// programs are those of others that fabrictest can use.
func programs() (found []netns.Capability) {
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

// diagnose prints one line for what works, and the cure for what does not.
func diagnose(w io.Writer, found []netns.Capability) error {
	colour := colourFor(w)
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
			fmt.Fprintf(&b, "%s%s\n", indent, printable.Line(c.Reason))
		}
		if c.Cure != "" {
			fmt.Fprintf(&b, "%sto have it: %s\n", indent, printable.Line(c.Cure))
		}
	}
	if why := netns.Available(); why != nil {
		fmt.Fprintf(&b, "\nScenarios run in simulation only: %v\n", why)
	} else {
		b.WriteString("\nScenarios run in simulation and in network namespaces.\n")
	}
	_, err := io.WriteString(uncleaned(w), b.String())
	return err
}

// colourFor returns how states are written to w: padded, and in colour on a
// terminal that wants it.
func colourFor(w io.Writer) func(netns.State) string {
	plain := func(s netns.State) string { return fmt.Sprintf("%-*s", len("limited"), s) }
	if terminalOf(w) == nil || os.Getenv("NO_COLOR") != "" {
		return plain
	}
	codes := map[netns.State]string{netns.Yes: "32", netns.No: "31", netns.Limited: "33"}
	return func(s netns.State) string { return "\x1b[" + codes[s] + "m" + plain(s) + "\x1b[0m" }
}
