package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/emu/softroce"
)

// options are those of `fabrictest run`.
type options struct {
	seed     uint64
	messages int
	patterns []string
	pcap     string
	json     bool
	list     bool
	quirks   softroce.Quirks
	flaws    []string
}

const maxMessages = 100_000

func newRunCommand() *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{
		Use:   "run [PATTERN...]",
		Short: "Run checked traffic over emulated fabrics, clean and impaired",
		Long: `Run checked traffic over emulated fabrics, clean and impaired.

Hosts with soft-RoCE NICs are brought up in a simulated world, where time is
virtual. They exchange messages of every service, and every byte is checked:
reliable services must deliver everything exactly once and in order whatever the
network does, unreliable ones may lose messages but never damage one.

PATTERN selects scenarios, service/network, with * for any part; see --list.
Exit codes: 0 everything held, 1 something did not, 2 called wrongly.`,
		Example: `  fabrictest run
  fabrictest run --seed 7                     the same run again, byte for byte
  fabrictest run 'rc/*' '*/incast' --messages 1000
  fabrictest run --pcap out/                  a capture of each scenario, for Wireshark
  fabrictest run rc/loss --quirk AckSkipsRead a flawed NIC, and how it is found out
  fabrictest run --json | jq '.rows[] | select(.ok|not)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.patterns = args
			if !cmd.Flags().Changed("seed") {
				o.seed = randomSeed()
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seed, "seed", 0, "decides everything that happens (default: random, and printed)")
	f.IntVar(&o.messages, "messages", 400, "messages that each end of a connection sends")
	f.StringVar(&o.pcap, "pcap", "", "write a pcapng `FILE` of all packets, or one file a scenario into DIR/")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.BoolVar(&o.list, "list", false, "print the scenarios' names and run none")
	f.StringArrayVar(&o.flaws, "quirk", nil, "give every NIC this flaw (docs/quirks.md has them); may be repeated")
	return cmd
}

// randomSeed draws a seed short enough to be typed.
func randomSeed() uint64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return uint64(binary.LittleEndian.Uint32(b[:]))
}

// check refuses what makes no sense and finds the scenarios.
func (o *options) check() ([]scenario, error) {
	if o.messages < 1 || o.messages > maxMessages {
		return nil, usagef("--messages %d: give a number in 1..%d", o.messages, maxMessages)
	}
	for _, name := range o.flaws {
		if err := o.quirks.Set(name, true); err != nil {
			return nil, usagef("--quirk: %w (docs/quirks.md lists all)", err)
		}
	}
	return choose(scenarios(), o.patterns)
}

// command is the command line that repeats this run, or one scenario of it.
func (o *options) command(only ...string) string {
	words := []string{"go run ./cmd/fabrictest run"}
	for _, p := range append(only, o.patterns...) {
		words = append(words, quote(p))
		if len(only) > 0 {
			break
		}
	}
	words = append(words, fmt.Sprintf("--seed %d --messages %d", o.seed, o.messages))
	for _, q := range o.flaws {
		words = append(words, "--quirk "+q)
	}
	return strings.Join(words, " ")
}

func quote(s string) string {
	if strings.ContainsAny(s, "*?[]") {
		return "'" + s + "'"
	}
	return s
}

func (o *options) run(cmd *cobra.Command) error {
	chosen, err := o.check()
	if err != nil {
		return err
	}
	if o.list {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(ids(chosen), "\n"))
		return err
	}
	sink, err := openSink(o.pcap)
	if err != nil {
		return err
	}
	began := time.Now()
	var show display
	if o.json {
		show = &jsonDisplay{w: cmd.OutOrStdout()}
	} else {
		show = newTable(cmd.OutOrStdout(), cmd.ErrOrStderr(), len(chosen))
	}
	rows, err := o.playAll(cmd.Context(), chosen, sink, show)
	if cerr := sink.close(err == nil); err == nil {
		err = cerr
	}
	if err != nil {
		show.abandon()
		return err
	}
	s := summary{Seed: o.seed, Command: o.command(), Rows: rows, Wall: time.Since(began), Captures: sink.files}
	for _, r := range rows {
		if !r.OK {
			s.Failed++
		}
	}
	if err := show.finish(&s); err != nil {
		return err
	}
	if s.Failed > 0 {
		return errFailed
	}
	return nil
}

// playAll runs the scenarios, several at a time, and hands them on in order.
func (o *options) playAll(ctx context.Context, chosen []scenario, sink *sink, show display) ([]outcome, error) {
	type done struct {
		out outcome
		cap *capture
		err error
	}
	queue := newPool(ctx, len(chosen), func(i int) done {
		c, err := sink.begin(chosen[i].id)
		if err != nil {
			return done{err: err}
		}
		out, err := o.play(&chosen[i], c.writer())
		return done{out, c, err}
	})
	defer queue.stop()
	var rows []outcome
	for i := range chosen {
		show.progress(i, chosen[i].id)
		d, err := queue.next()
		if err == nil {
			err = d.err
		}
		if err == nil {
			err = sink.add(d.cap)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", chosen[i].id, err)
		}
		rows = append(rows, d.out)
		show.row(&d.out)
	}
	return rows, nil
}
