package image

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is one of the kernel's.
type module struct {
	file    string // its name in the guest
	octets  []byte
	depends []string // on modules, by their names
	aliases []string
}

// packModules adds the modules that a guest loads, those that its kernel may ask
// for, and the two lists that modprobe finds them by. depmod is not needed for it.
func (b *build) packModules(ctx context.Context, a *Archive, kernel string) error {
	root := filepath.Join(kernel, "lib", "modules", b.release)
	files, err := moduleFiles(root)
	if err != nil {
		return err
	}
	builtin, err := builtinModules(root)
	if err != nil {
		return err
	}
	found := map[string]*module{}
	for _, name := range append(slices.Clone(theRecipe.Modules), theRecipe.OnDemand...) {
		if builtin[name] {
			continue
		}
		if err := loadClosure(ctx, files, name, found); err != nil {
			return fmt.Errorf("Linux %s: %w", b.release, err)
		}
	}
	dir := "/lib/modules/" + b.release
	a.Dir(dir)
	for _, name := range sortedKeys(found) {
		m := found[name]
		a.File(dir+"/"+m.file, 0o644, int64(len(m.octets)), bytes.NewReader(m.octets))
	}
	a.Text(dir+"/modules.dep", 0o644, dependencyList(found))
	a.Text(dir+"/modules.alias", 0o644, aliasList(found))
	return addFile(a, dir+"/modules.builtin", filepath.Join(root, "modules.builtin"))
}

// moduleFiles are all modules of a kernel by their names.
func moduleFiles(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), ".ko") {
			files[moduleName(path)] = path
		}
		return err
	})
	return files, err
}

func builtinModules(root string) (map[string]bool, error) {
	text, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		all[moduleName(strings.TrimSpace(line))] = true
	}
	return all, nil
}

// loadClosure reads a module and all that it depends on.
func loadClosure(ctx context.Context, files map[string]string, name string, into map[string]*module) error {
	if into[name] != nil {
		return nil
	}
	path := files[name]
	if path == "" {
		return fmt.Errorf("there is no module %s", name)
	}
	octets, err := readModule(ctx, path)
	if err != nil {
		return err
	}
	m, err := parseModule(octets)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m.file = name + ".ko"
	into[name] = m
	for _, d := range m.depends {
		if err := loadClosure(ctx, files, d, into); err != nil {
			return fmt.Errorf("%s needs %s: %w", name, d, err)
		}
	}
	return nil
}

// readModule reads a module, which may be compressed: the guest's modprobe knows no
// xz, and its processor is slow.
func readModule(ctx context.Context, path string) ([]byte, error) {
	switch filepath.Ext(path) {
	case ".ko":
		return os.ReadFile(path)
	case ".xz":
		octets, err := exec.CommandContext(ctx, "xz", "-dc", path).Output()
		if err != nil {
			return nil, fmt.Errorf("xz -dc %s: %w", path, err)
		}
		return octets, nil
	}
	return nil, fmt.Errorf("%s is compressed in a way that is not known here", path)
}

// parseModule reads what a module says of itself.
func parseModule(octets []byte) (*module, error) {
	f, err := elf.NewFile(bytes.NewReader(octets))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("it has no .modinfo: is it a module?")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	m := &module{octets: octets}
	for field := range strings.SplitSeq(string(info), "\x00") {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case key == "depends" && value != "":
			for name := range strings.SplitSeq(value, ",") {
				m.depends = append(m.depends, moduleName(name))
			}
		case key == "alias":
			m.aliases = append(m.aliases, value)
		}
	}
	return m, nil
}

// loadOrder is a module with all that must be loaded before it, those first.
func loadOrder(all map[string]*module, name string) (order []string) {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, d := range all[name].depends {
			visit(d)
		}
		order = append(order, name)
	}
	visit(name)
	return order
}

// dependencyList is modules.dep: each module, and what it needs, the last of which is
// loaded first.
func dependencyList(all map[string]*module) string {
	var b strings.Builder
	for _, name := range sortedKeys(all) {
		order := loadOrder(all, name)
		slices.Reverse(order)
		fmt.Fprintf(&b, "%s:", all[name].file)
		for _, need := range order[1:] {
			fmt.Fprintf(&b, " %s", all[need].file)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// aliasList is modules.alias: what a kernel asks for, and the module that it means.
func aliasList(all map[string]*module) string {
	var b strings.Builder
	for _, name := range sortedKeys(all) {
		for _, alias := range all[name].aliases {
			fmt.Fprintf(&b, "alias %s %s\n", alias, name)
		}
	}
	return b.String()
}
