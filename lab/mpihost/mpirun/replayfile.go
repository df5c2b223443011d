package mpirun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
)

// ReplaySuffix is the suffix of replay files.
const ReplaySuffix = ".replay"

const (
	replayVersion   = 1
	maxReplayBytes  = 64 << 20
	replayFirstLine = "# A run that fails, found by 'fabrictest explore'. To repeat it: fabrictest replay %s\n"
)

// ReplayFile is a run that fails.
type ReplayFile struct {
	Version int `yaml:"version"`
	// Program has the words after 'fabrictest explore': a workload or a program, and its arguments.
	Program []string `yaml:"program,flow"`
	// Job is the mpihost.Job with the fabric and the options of the runtime.
	Job yaml.Node `yaml:"job"`
	// Failure is the text of the error.
	Failure string `yaml:"failure"`
	// Path has the choices that are not 0 (explore.Path.Changes).
	Path string `yaml:"path"`
}

// WriteReplay writes a run that failed to a file that does not exist, or replaces one.
func WriteReplay(name string, words []string, job mpihost.Job, failure *mpihost.ExploredFailure) error {
	f := ReplayFile{Version: replayVersion, Program: words, Failure: failure.Error, Path: failure.Changes}
	text, err := json.Marshal(job)
	if err == nil {
		err = yaml.Unmarshal(text, &f.Job) // JSON is YAML, and a node keeps its numbers
	}
	if err != nil {
		return fmt.Errorf("replay file: %w", err)
	}
	if f.Job.Kind == yaml.DocumentNode {
		f.Job = *f.Job.Content[0]
	}
	asBlock(&f.Job)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return cli.WriteFile(name, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, replayFirstLine, cli.Quote(name)); err != nil {
			return err
		}
		return yaml.NewEncoder(w).Encode(&f)
	})
}

// asBlock makes a node one that is written over several lines, not as JSON.
func asBlock(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		asBlock(c)
	}
}

// ReadReplay reads a replay file.
func ReadReplay(name string) (f ReplayFile, job mpihost.Job, err error) {
	text, err := cli.ReadFile(name, maxReplayBytes)
	if err != nil {
		return f, job, cli.Errorf("%w", err)
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	var values any
	if err = in.Decode(&f); err == nil {
		err = f.Job.Decode(&values)
	}
	if err == nil {
		if text, err = json.Marshal(values); err == nil {
			err = json.Unmarshal(text, &job)
		}
	}
	switch {
	case err != nil:
		err = cli.Errorf("%s is not a replay file of 'fabrictest explore': %w", name, err)
	case f.Version != replayVersion:
		err = cli.Errorf("%s has version %d, and this program reads version %d: explore again", name, f.Version, replayVersion)
	case len(f.Program) == 0 || job.Explore == nil:
		err = cli.Errorf("%s has no program, or no job with explore: it is not a replay file of 'fabrictest explore'", name)
	}
	return f, job, err
}

// ReplayFiles returns the replay files that path names: itself if it ends in ReplaySuffix, or those
// of a folder. It returns nil if there are none.
func ReplayFiles(path string) []string {
	info, err := os.Stat(path)
	if filepath.Ext(path) == ReplaySuffix && (err != nil || !info.IsDir()) {
		return []string{path}
	}
	if err != nil || !info.IsDir() {
		return nil
	}
	all, _ := filepath.Glob(filepath.Join(path, "*"+ReplaySuffix)) // the pattern is valid
	slices.Sort(all)
	return all
}
