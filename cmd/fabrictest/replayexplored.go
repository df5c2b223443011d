package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/report/sequence"
)

// replayFiles repeats the runs of replay files. It fails if one does not fail as it should.
func (o *replayOptions) replayFiles(cmd *cobra.Command, files []string) error {
	for flag, file := range map[string]string{"pcap": o.pcap, "html": o.html} {
		if file != "" && len(files) > 1 {
			return cli.Errorf("--%s is for one run: name one of the %d files", flag, len(files))
		}
	}
	out := cmd.OutOrStdout()
	var failed error
	for _, name := range files {
		same, err := o.replayFile(cmd.Context(), out, name)
		if err != nil {
			return err
		}
		if !same {
			failed = errFailed
		}
	}
	return failed
}

// replayFile repeats the run of a replay file, and reports whether it fails with the same message.
func (o *replayOptions) replayFile(ctx context.Context, out io.Writer, name string) (same bool, err error) {
	file, job, err := mpirun.ReadReplay(name)
	if err != nil {
		return false, err
	}
	c := mpirun.Config{Job: job}
	if c.Args, err = mpirun.RankArgs(file.Program, job.Ranks, job.Seed); err != nil {
		return false, err
	}
	c.Explore.Replay, c.Explore.Capture = &file.Path, o.pcap
	c.Explore.Calls = o.trace || o.html != ""
	if c.Explore.Calls && o.pcap == "" {
		f, err := os.CreateTemp("", "fabrictest-*.pcapng")
		if err != nil {
			return false, err
		}
		c.Explore.Capture = f.Name()
		defer os.Remove(f.Name())
		defer f.Close()
	}
	fmt.Fprintf(out, "%s: %s on %s\n", name, cli.Join(file.Program), cli.Plural(job.Ranks, "rank"))
	printLine := func(line string) { fmt.Fprintln(out, "  "+line) }
	r, err := mpirun.Explore(ctx, c, printLine, func(explore.Progress) {})
	if err != nil {
		return false, err
	}
	if c.Explore.Calls {
		d, err := newDiagram(name, &file, &job, c.Explore.Capture, r)
		if err == nil {
			err = o.draw(out, d)
		}
		if err != nil {
			return false, err
		}
	}
	return compareReplay(out, &file, r), nil
}

// draw prints the diagram of a run, or writes its page.
func (o *replayOptions) draw(out io.Writer, d *sequence.Diagram) error {
	if o.trace {
		if err := d.WriteText(out); err != nil {
			return err
		}
	}
	if o.html == "" {
		return nil
	}
	if err := cli.WriteFile(o.html, d.WriteHTML); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "Page: "+o.html)
	return err
}

// compareReplay prints how a repeated run has ended, and reports whether it was as the file says.
func compareReplay(out io.Writer, file *mpirun.ReplayFile, r *mpihost.Explored) bool {
	switch {
	case r.Failure == nil:
		fmt.Fprintln(out, "The run does not fail any more: if the error was corrected, delete the file. It failed with:\n"+file.Failure)
	case r.Failure.Error != file.Failure:
		fmt.Fprintf(out, "The run fails in another way:\n%s\nIt failed with:\n%s\n", r.Failure.Error, file.Failure)
	default:
		printFailure(out, r.Failure)
		fmt.Fprintln(out, "The run fails with the same message.")
		return true
	}
	return false
}
