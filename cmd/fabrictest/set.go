package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

func newSetCommand() *cobra.Command {
	name := live.DefaultName
	cmd := &cobra.Command{
		Use:   "set PORT up|down|clean|KEY=VALUE...",
		Short: "Break the links of a fabric that is up, or mend them",
		Long: `Change the links of a fabric that is up. PORT is a host (host1), one of its ports
(host1/rdma0) or a pattern (host*).

down cuts the cable, up joins it again. KEY=VALUE sets what packets meet from now
on, in place of what they met before: the keys are those of a scenario's impair
section (loss, burst, duplicate, reorder, delay, jitter, corrupt, truncate, mark,
rate, queue, way). clean lets everything pass.`,
		Example: `  fabrictest set host1 down
  fabrictest set host1 up
  fabrictest set 'host*' loss=1%
  fabrictest set host0/rdma1 delay=2ms jitter=1ms way=out
  fabrictest set host1 clean`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			port, how := args[0], args[1:]
			if len(how) == 1 && (how[0] == "up" || how[0] == "down") {
				return live.SetLink(name, port, how[0] == "up")
			}
			info, err := live.Ask(name)
			if err != nil {
				return err
			}
			text, err := impairText(port, how, info)
			if err != nil {
				return err
			}
			return live.Impair(name, port, text)
		},
	}
	cmd.Flags().StringVar(&name, "lab", name, "which lab")
	_ = cmd.RegisterFlagCompletionFunc("lab", completeLabs)
	return cmd
}

// impairText is a scenario that says of a port what the words do.
func impairText(port string, words []string, info *live.Info) (string, error) {
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "set", Title: "What packets meet", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: info.Fabric,
	}
	text, err := s.Marshal()
	if err != nil {
		return "", err
	}
	if len(words) == 1 && words[0] == "clean" {
		return string(text), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nimpair:\n  - on: [%q]\n", text, port)
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return "", usagef("%q: give up, down, clean, or KEY=VALUE such as loss=1%%", w)
		}
		fmt.Fprintf(&b, "    %s: %s\n", key, value)
	}
	// Whatever is wrong with it is found here, where it can be said best.
	if _, err := scenarios.Parse("set.yaml", []byte(b.String())); err != nil {
		return "", &usageError{err}
	}
	return b.String(), nil
}
