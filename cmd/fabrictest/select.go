package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/scenarios"
)

// selection is which scenarios a command is about.
type selection struct {
	patterns []string // names, patterns of names, or files
	tags     []string
}

// standardTag marks what runs when nothing else is asked for.
const standardTag = "standard"

// choice is a scenario that was selected, and how: a name, or a file.
type choice struct {
	*scenarios.Scenario
	given string
}

// find returns the scenarios selected, in the order of their names, files last.
func (s *selection) find() ([]choice, error) {
	shipped, err := scenarios.Builtin()
	if err != nil {
		return nil, err
	}
	tags := s.tags
	if len(tags) == 0 && len(s.patterns) == 0 {
		tags = []string{standardTag}
	}
	for _, tag := range tags {
		if !slices.Contains(allTags(shipped), tag) {
			return nil, cmdline.Errorf("--tag %s: no scenario has it; %s", tag, cmdline.DidYouMean(tag, allTags(shipped), "fabrictest list"))
		}
	}
	names, files, err := s.split(shipped)
	if err != nil {
		return nil, err
	}
	var chosen []choice
	for _, sc := range shipped {
		if len(s.patterns) > 0 && !matchesAny(names, sc.Name) || !hasAll(sc.Tags, tags) {
			continue
		}
		chosen = append(chosen, choice{sc, sc.Name})
	}
	for _, file := range files {
		sc, err := scenarios.Load(regularfile.DirFS(filepath.Dir(file)), filepath.Base(file))
		if err != nil {
			return nil, &cmdline.Error{Err: err}
		}
		// The folder of a run has one place for each name.
		if i := slices.IndexFunc(chosen, func(c choice) bool { return c.Name == sc.Name }); i >= 0 {
			return nil, cmdline.Errorf("%s and %s are both called %s: change the name in one of them, or run them apart", chosen[i].given, file, sc.Name)
		}
		chosen = append(chosen, choice{sc, file})
	}
	if len(chosen) == 0 {
		return nil, cmdline.Errorf("no scenario has all of the tags %s and a name that fits: 'fabrictest list' shows all", strings.Join(tags, ", "))
	}
	return chosen, nil
}

// split tells patterns of names from files, and refuses what is neither.
func (s *selection) split(shipped []*scenarios.Scenario) (names, files []string, err error) {
	for _, p := range s.patterns {
		if strings.HasSuffix(p, ".yaml") || strings.HasSuffix(p, ".yml") {
			more, err := matching(p)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, more...)
			continue
		}
		if info, err := os.Stat(p); err == nil && info.IsDir() && !isShipped(p, shipped) {
			return nil, nil, cmdline.Errorf("%s is a folder: name the files in it, %s", p, filepath.Join(p, "*.yaml"))
		}
		if _, err := path.Match(p, ""); err != nil {
			return nil, nil, cmdline.Errorf("pattern %q: %w", p, err)
		}
		if !isShipped(p, shipped) {
			return nil, nil, cmdline.Errorf("no scenario is called %q; %s", p, cmdline.DidYouMean(p, scenarioNames(shipped), "fabrictest list"))
		}
		names = append(names, p)
	}
	return names, withoutTwins(files), nil
}

func isShipped(pattern string, shipped []*scenarios.Scenario) bool {
	return slices.ContainsFunc(shipped, func(sc *scenarios.Scenario) bool { return matchesAny([]string{pattern}, sc.Name) })
}

// matching are the files that a name stands for: itself, unless it is a pattern
// that the shell left alone.
func matching(name string) ([]string, error) {
	if _, err := os.Lstat(name); err == nil || !strings.ContainsAny(name, `*?[`) {
		return []string{name}, nil
	}
	files, err := filepath.Glob(name)
	if err != nil {
		return nil, cmdline.Errorf("pattern %q: %w", name, err)
	}
	if len(files) == 0 {
		return nil, cmdline.Errorf("no file matches %s; the scenarios that ship with fabrictest are called without .yaml", name)
	}
	return files, nil
}

// withoutTwins leaves out files that were named before, by another path perhaps.
func withoutTwins(files []string) (once []string) {
	var seen []os.FileInfo
	for _, f := range files {
		info, err := os.Stat(f)
		if err == nil && slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }) {
			continue
		}
		if err == nil {
			seen = append(seen, info)
		}
		once = append(once, f) // one that is not there is for the loader to complain of
	}
	return once
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

func hasAll(tags, wanted []string) bool {
	for _, w := range wanted {
		if !slices.Contains(tags, w) {
			return false
		}
	}
	return true
}

func allTags(all []*scenarios.Scenario) (tags []string) {
	for _, sc := range all {
		tags = append(tags, sc.Tags...)
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

func scenarioNames(all []*scenarios.Scenario) (names []string) {
	for _, sc := range all {
		names = append(names, sc.Name)
	}
	return names
}

// parseTiers reads the value of --on; nil for "whatever works".
func parseTiers(on []string) (tiers []scenarios.Tier, err error) {
	for _, name := range on {
		switch t := scenarios.Tier(name); t {
		case scenarios.Sim, scenarios.NetNS:
			if !slices.Contains(tiers, t) {
				tiers = append(tiers, t)
			}
		default:
			return nil, cmdline.Errorf("--on %s: give sim, netns, or both with a comma between", name)
		}
	}
	return tiers, nil
}
