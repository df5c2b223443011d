package kernel

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

// module is a kernel module.
type module struct {
	file    string // name in the guest
	data    []byte
	depends []string // names of modules
	aliases []string
}

// packModules adds the modules of the recipe (the list of an image's contents) with their
// dependencies, and the lists that modprobe needs. It does not need depmod.
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
	for _, name := range append(slices.Clone(currentRecipe.Modules), currentRecipe.OnDemand...) {
		if builtin[name] {
			continue
		}
		if err := addModule(ctx, files, name, found); err != nil {
			return fmt.Errorf("Linux %s: %w", b.release, err)
		}
	}
	dir := "/lib/modules/" + b.release
	a.AddDir(dir)
	for _, name := range sortedKeys(found) {
		m := found[name]
		a.AddFile(dir+"/"+m.file, 0o644, int64(len(m.data)), bytes.NewReader(m.data))
	}
	a.AddText(dir+"/modules.dep", 0o644, dependencyList(found))
	a.AddText(dir+"/modules.alias", 0o644, aliasList(found))
	a.CopyFile(dir+"/modules.builtin", filepath.Join(root, "modules.builtin"))
	return nil
}

// moduleFiles returns all module files of a kernel by module name.
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

// builtinModules returns the modules that are built into the kernel below root.
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

// addModule reads a module and its dependencies, and adds them to found. files has the paths of
// all modules by name.
func addModule(ctx context.Context, files map[string]string, name string, found map[string]*module) error {
	if found[name] != nil {
		return nil
	}
	path := files[name]
	if path == "" {
		return fmt.Errorf("no module %s", name)
	}
	data, err := readModule(ctx, path)
	if err != nil {
		return err
	}
	m, err := parseModule(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m.file = name + ".ko"
	found[name] = m
	for _, d := range m.depends {
		if err := addModule(ctx, files, d, found); err != nil {
			return fmt.Errorf("%s needs %s: %w", name, d, err)
		}
	}
	return nil
}

// readModule reads and uncompresses a module: the guest's modprobe does not support xz.
func readModule(ctx context.Context, path string) ([]byte, error) {
	switch filepath.Ext(path) {
	case ".ko":
		return os.ReadFile(path)
	case ".xz":
		data, err := exec.CommandContext(ctx, "xz", "-dc", path).Output()
		if err != nil {
			return nil, fmt.Errorf("xz -dc %s: %w", path, err)
		}
		return data, nil
	}
	return nil, fmt.Errorf("%s: unknown compression", path)
}

// parseModule reads the dependencies and aliases in .modinfo.
func parseModule(data []byte) (*module, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section: is it a module?")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	m := &module{data: data}
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

// loadOrder returns a module and its dependencies in the order of loading.
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

// dependencyList returns modules.dep: each module with its dependencies in reverse load order.
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

// aliasList returns modules.alias: the names that the kernel requests, with their modules.
func aliasList(all map[string]*module) string {
	var b strings.Builder
	for _, name := range sortedKeys(all) {
		for _, alias := range all[name].aliases {
			fmt.Fprintf(&b, "alias %s %s\n", alias, name)
		}
	}
	return b.String()
}
