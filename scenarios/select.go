package scenarios

import (
	"embed"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Selection selects scenarios by the words of a command line.
type Selection struct {
	Patterns []string // names, patterns of names, or files
	Tags     []string
}

// StandardTag marks the scenarios that an empty Selection selects.
const StandardTag = "standard"

// Selected is a selected scenario, and the name or the file that selected it.
type Selected struct {
	*Scenario
	Given string
}

// Find returns the shipped scenarios that have all tags and match a pattern, sorted by name, and
// then the files that patterns name. Without tags and patterns, it returns those with StandardTag.
func (s *Selection) Find() ([]Selected, error) {
	shipped, err := Builtin()
	if err != nil {
		return nil, err
	}
	tags := s.Tags
	if len(tags) == 0 && len(s.Patterns) == 0 {
		tags = []string{StandardTag}
	}
	for _, tag := range tags {
		if !slices.Contains(Tags(shipped), tag) {
			return nil, cli.Errorf("--tag %s: no scenario has this tag; %s", tag, cli.DidYouMean(tag, Tags(shipped), "fabrictest list scenarios"))
		}
	}
	names, files, err := s.split(shipped)
	if err != nil {
		return nil, err
	}
	var chosen []Selected
	for _, sc := range shipped {
		lacksTag := slices.ContainsFunc(tags, func(tag string) bool { return !slices.Contains(sc.Tags, tag) })
		if !lacksTag && (len(s.Patterns) == 0 || MatchesAny(names, sc.Name)) {
			chosen = append(chosen, Selected{sc, sc.Name})
		}
	}
	for _, file := range files {
		sc, err := Load(cli.DirFS(filepath.Dir(file)), filepath.Base(file))
		if err != nil {
			return nil, &cli.Error{Err: err}
		}
		// The folder of a run has one place for each name.
		if i := slices.IndexFunc(chosen, func(c Selected) bool { return c.Name == sc.Name }); i >= 0 {
			return nil, cli.Errorf("%s and %s are both called %s: change the name in one of them, or run them apart", chosen[i].Given, file, sc.Name)
		}
		chosen = append(chosen, Selected{sc, file})
	}
	if len(chosen) == 0 {
		return nil, cli.Errorf("no scenario has all of the tags %s and a name that fits: 'fabrictest list scenarios' shows all", strings.Join(tags, ", "))
	}
	return chosen, nil
}

// split separates patterns of names from files. A folder, or a pattern that no shipped scenario
// matches, is an error.
func (s *Selection) split(shipped []*Scenario) (names, files []string, err error) {
	for _, p := range s.Patterns {
		if strings.HasSuffix(p, ".yaml") || strings.HasSuffix(p, ".yml") {
			more, err := expandFiles(p)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, more...)
			continue
		}
		if info, err := os.Stat(p); err == nil && info.IsDir() && !isShipped(p, shipped) {
			return nil, nil, cli.Errorf("%s is a folder: name the files in it, %s", p, filepath.Join(p, "*.yaml"))
		}
		if _, err := path.Match(p, ""); err != nil {
			return nil, nil, cli.Errorf("pattern %q: %w", p, err)
		}
		if !isShipped(p, shipped) {
			var known []string
			for _, sc := range shipped {
				known = append(known, sc.Name)
			}
			return nil, nil, cli.Errorf("no scenario is called %q; %s", p, cli.DidYouMean(p, known, "fabrictest list scenarios"))
		}
		names = append(names, p)
	}
	return names, withoutDuplicates(files), nil
}

// isShipped reports whether a pattern matches a scenario that ships with fabrictest.
func isShipped(pattern string, shipped []*Scenario) bool {
	return slices.ContainsFunc(shipped, func(sc *Scenario) bool { return MatchesAny([]string{pattern}, sc.Name) })
}

// expandFiles returns the files that an argument names: itself, or the matches of a pattern that
// the shell did not expand.
func expandFiles(name string) ([]string, error) {
	if _, err := os.Lstat(name); err == nil || !strings.ContainsAny(name, `*?[`) {
		return []string{name}, nil
	}
	files, err := filepath.Glob(name)
	if err != nil {
		return nil, cli.Errorf("pattern %q: %w", name, err)
	}
	if len(files) == 0 {
		return nil, cli.Errorf("no file matches %s; the scenarios that ship with fabrictest are called without .yaml", name)
	}
	return files, nil
}

// withoutDuplicates removes files that were named before, even by another path.
func withoutDuplicates(files []string) (unique []string) {
	var seen []os.FileInfo
	for _, f := range files {
		info, err := os.Stat(f)
		if err == nil && slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }) {
			continue
		}
		if err == nil {
			seen = append(seen, info)
		}
		unique = append(unique, f) // the loader reports a missing file
	}
	return unique
}

// MatchesAny reports whether a name matches any pattern. A malformed pattern matches nothing.
func MatchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// Tags returns the tags of scenarios, sorted.
func Tags(all []*Scenario) (tags []string) {
	for _, sc := range all {
		tags = append(tags, sc.Tags...)
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// ParseTiers parses the values of --on: the tiers, sim or netns, on which to run scenarios.
func ParseTiers(on []string) (tiers []Tier, err error) {
	for _, name := range on {
		switch t := Tier(name); t {
		case Sim, NetNS:
			if !slices.Contains(tiers, t) {
				tiers = append(tiers, t)
			}
		default:
			return nil, cli.Errorf("--on %s: give sim, netns, or both with a comma between", name)
		}
	}
	return tiers, nil
}

//go:embed *.yaml paper/*.yaml
var shipped embed.FS

//go:embed schema.json
var schema []byte

// Files contains the files of the scenarios that ship with fabrictest; those that compare with
// published results are in the folder paper.
func Files() fs.FS { return shipped }

// Builtin returns the scenarios that ship with fabrictest, sorted by name. They are parsed once;
// callers must not change them.
func Builtin() ([]*Scenario, error) {
	all, err := parseShipped()
	return slices.Clone(all), err
}

var parseShipped = sync.OnceValues(func() ([]*Scenario, error) {
	names, err := fs.Glob(shipped, "*.yaml")
	if err != nil {
		return nil, err
	}
	papers, err := fs.Glob(shipped, "paper/*.yaml")
	if err != nil {
		return nil, err
	}
	names = append(names, papers...)
	all := make([]*Scenario, 0, len(names))
	for _, name := range names {
		s, err := Load(shipped, name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Scenario) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
})

// Schema is the JSON schema of scenario files (draft 2020-12).
func Schema() []byte { return slices.Clone(schema) }

// FindExperiment returns the scenario with an experiment that has a name, or is in a file.
func FindExperiment(name string) (*Scenario, error) {
	chosen, err := (&Selection{Patterns: []string{name}}).Find()
	if err != nil {
		return nil, err
	}
	if len(chosen) != 1 || chosen[0].Experiment == nil {
		return nil, cli.Errorf("%s: name one scenario with an experiment: 'fabrictest list scenarios --tag paper' lists them", name)
	}
	return chosen[0].Scenario, nil
}
