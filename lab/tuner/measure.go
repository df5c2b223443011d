package tuner

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// Iterations of the workload. A simulation has no noise, but the order of the algorithms changes in each
// round.
const (
	warmup              = 4
	maxIterations       = 1000
	simulatedIterations = 8
)

// measureJob runs the workload, which may take for about a time, and returns its times.
func (p *Plan) measureJob(ctx context.Context, j *job, limit time.Duration) ([]work.CollectiveTime, error) {
	dir, err := os.MkdirTemp("", "fabrictest-tune-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "result.json")
	config := p.Job
	config.Ranks, config.PerHost = j.ranks, j.perHost
	if config.Args, err = mpirun.RankArgs(p.words(j, limit, file), j.ranks, p.Job.Seed); err != nil {
		return nil, err
	}
	result, err := p.Tier.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if result.Code != 0 {
		return nil, fmt.Errorf("the ranks failed with code %d", result.Code)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r work.Result
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return r.Collectives, nil
}

// words returns the workload with its arguments.
func (p *Plan) words(j *job, limit time.Duration, file string) []string {
	sizes := strings.Trim(strings.ReplaceAll(fmt.Sprint(j.sizes), " ", ","), "[]")
	all := []string{
		work.CollectiveName, "--operation", j.operation, "--sizes", sizes, "--algorithms", "all", "--warmup", fmt.Sprint(warmup), "--json", file,
	}
	if p.isSimulated() {
		return append(all, "--iterations", fmt.Sprint(simulatedIterations))
	}
	const overheads = 2 // the time of a job, in times of its measurements
	each := limit / time.Duration(overheads*len(j.sizes))
	return append(all, "--iterations", fmt.Sprint(maxIterations), "--time", each.String())
}
