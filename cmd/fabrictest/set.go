package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

func newSetCommand() *cobra.Command {
	name := live.DefaultName
	cmd := &cobra.Command{
		Use:   "set PORT up|down|clean|KEY=VALUE...",
		Short: "Impair, cut or restore the links of a fabric that is up",
		Long: `Change the links of a fabric that is up. PORT is a host (host1), one of its ports
(host1/rdma0) or a pattern (host*).

down cuts the link, up restores it. KEY=VALUE replaces the impairments of packets: the
keys are those of a scenario's impair
section (loss, burst, duplicate, reorder, delay, jitter, corrupt, truncate, mark,
rate, queue, way). clean removes all impairments.

Packets are impaired in both directions; with way=out or way=in, only those that the
port sends or receives.`,
		Example: `  fabrictest set host1 down
  fabrictest set host1 up
  fabrictest set 'host*' loss=1%
  fabrictest set host0/rdma1 delay=2ms jitter=1ms way=out
  fabrictest set host1 clean`,
		Args:              atLeast(2, "name a port and what is to become of it, as in 'fabrictest set host1 loss=1%'"),
		ValidArgsFunction: completeSet,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			port, how := args[0], args[1:]
			if len(how) == 1 && (how[0] == "up" || how[0] == "down") {
				return live.SetLink(ctx, name, port, how[0] == "up")
			}
			info, err := live.Query(ctx, name)
			if err != nil {
				return err
			}
			text, err := impairText(info.Fabric, port, port, how)
			if err != nil {
				return err
			}
			return live.Impair(ctx, name, port, text)
		},
	}
	cmd.Flags().StringVar(&name, "lab", name, "the lab called `LAB`")
	_ = cmd.RegisterFlagCompletionFunc("lab", completeLabs)
	return cmd
}

// impairText is a scenario that says of a port what the words do. The user knows the
// port by another name, maybe.
func impairText(fabric scenarios.Fabric, port, known string, words []string) (string, error) {
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "set", Title: "What packets meet", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: fabric,
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
	way := false
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return "", cmdline.Errorf("%q: give up, down, clean, or KEY=VALUE such as loss=1%%", w)
		}
		way = way || key == "way"
		fmt.Fprintf(&b, "    %s: %s\n", key, value)
	}
	if !way { // whoever breaks a link by hand means the link
		b.WriteString("    way: " + scenarios.Both + "\n")
	}
	// Whatever is wrong with it is found here, where it can be said best.
	if _, err := scenarios.Parse("set.yaml", []byte(b.String())); err != nil {
		return "", setMistake(err, known, words)
	}
	return b.String(), nil
}

// setMistake is what is wrong with a section that the user never saw, in the words
// that he wrote.
func setMistake(err error, port string, words []string) error {
	return translate(err, func(key string) string {
		name, ok := strings.CutPrefix(key, "impair[0].")
		if ok && strings.HasPrefix(name, "on") {
			return port
		}
		for _, w := range words {
			if k, _, _ := strings.Cut(w, "="); k == name {
				return w
			}
		}
		if ok && name != "" { // a key that is missing
			return port + " " + strings.Join(words, " ") + ": " + name
		}
		return port + " " + strings.Join(words, " ")
	})
}

// impairKeys are those that KEY=VALUE takes.
func impairKeys() (keys []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[scenarios.Impairment]()) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch name {
		case "", "on", "from", "until": // PORT says where, and the time is now
		default:
			keys = append(keys, name)
		}
	}
	return keys
}
