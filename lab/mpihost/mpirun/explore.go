package mpirun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
)

// Explore starts the program once. That process explores its simulation, or repeats a run, as
// c.Explore says. printLine is called for each line of its output.
func Explore(ctx context.Context, c Config, printLine func(line string), progress func(explore.Progress)) (*mpihost.Explored, error) {
	var result *mpihost.Explored
	started, last := false, ""
	code, err := c.simulate(ctx, func(e *launch.Event) {
		printLine(e.Text)
		last = (last + "\n" + e.Text)[max(0, len(last)+1+len(e.Text)-maxLastOutput):]
	}, func(reports io.Reader) (err error) {
		result, started, err = readExplored(reports, progress)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case result != nil:
		return result, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case !started && code == 0:
		return nil, fmt.Errorf("%s has ended: %s", c.Args[0], notARank)
	}
	return nil, fmt.Errorf("%s has ended with exit code %d while it was explored. Its last output was:%s", c.Args[0], code, last)
}

// maxLastOutput is how much of the output of a program that crashed is kept.
const maxLastOutput = 4 << 10

// readExplored reads the reports of an exploration until the end of file.
func readExplored(from io.Reader, progress func(explore.Progress)) (result *mpihost.Explored, started bool, err error) {
	for in := json.NewDecoder(from); ; {
		var r mpihost.Report
		err := in.Decode(&r)
		switch {
		case errors.Is(err, io.EOF):
			return result, started, nil
		case err != nil:
		case r.Rank == mpihost.ReportStarted:
			started = true
		case r.Rank == mpihost.ReportProgress:
			var p explore.Progress
			if err = json.Unmarshal(r.Text, &p); err == nil {
				progress(p)
			}
		case r.Rank == mpihost.ReportExplored:
			result = new(mpihost.Explored)
			err = json.Unmarshal(r.Text, result)
		}
		if err != nil {
			return nil, started, fmt.Errorf("reports of the exploration: %w", err)
		}
	}
}
