package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
)

func (p *program) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Args: exactly("DIR"), Short: "Write the manual pages of all commands to a directory",
		Long: "Write the manual pages of all commands to a directory, which is created unless it exists, one page for each command. Only their owner can read them " +
			"there; install(1) gives them the mode that man(1) needs.",
		Example: "  conclave man pages && sudo install -m 644 pages/*.1 /usr/local/share/man/man1/",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o700); err != nil {
				return err
			}
			return writePages(args[0], cmd.Root())
		},
	}
}

// writePages writes the page of a command, and those of its commands.
func writePages(dir string, cmd *cobra.Command) error {
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(page(cmd)), 0o600); err != nil {
		return err
	}
	for _, sub := range withPages(cmd) {
		if err := writePages(dir, sub); err != nil {
			return err
		}
	}
	return nil
}

// withPages are the commands of a command that have a page.
func withPages(cmd *cobra.Command) (commands []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			commands = append(commands, sub)
		}
	}
	return commands
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is a manual page of section 1, in the language of man(7). It has no date, so that the same program writes the same page.
func page(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Conclave\"\n", strings.ToUpper(pageName(cmd)), "conclave "+roff(conclave.Version()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	fmt.Fprint(&b, ".SH SYNOPSIS\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, ".B %s\n", roff(cmd.UseLine()))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".br\n.B %s\n", roff(cmd.CommandPath()+" COMMAND"))
	}
	fmt.Fprint(&b, ".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	pageText(&b, text)
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, ".PP\n%s is the same command.\n", roff(strings.Join(cmd.Aliases, ", ")))
	}
	if commands := withPages(cmd); len(commands) > 0 {
		fmt.Fprint(&b, ".SH COMMANDS\n")
		for _, sub := range commands {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(sub)), roff(sub.Short))
		}
	}
	pageFlags(&b, cmd)
	if cmd.Example != "" {
		fmt.Fprint(&b, ".SH EXAMPLES\n")
		pageText(&b, cmd.Example)
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(cmd.Parent())))
	}
	return b.String()
}

// pageFlags writes the flags of a command; those that all commands have are in the page of the first one.
func pageFlags(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprint(b, ".SH OPTIONS\n")
	show := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		text := "--" + f.Name
		if f.Shorthand != "" {
			text = "-" + f.Shorthand + ", " + text
		}
		value, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(text))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	}
	cmd.LocalNonPersistentFlags().VisitAll(show)
	if cmd.HasParent() {
		fmt.Fprintf(b, ".PP\nThe flags that all commands have are in\n.BR %s (1).\n", roff(pageName(cmd.Root())))
		return
	}
	fmt.Fprint(b, ".PP\nAll commands have the following ones:\n")
	cmd.PersistentFlags().VisitAll(show)
}

// pageText writes paragraphs, in which lines that are indented remain as they are.
func pageText(b *strings.Builder, text string) {
	literal := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, " "); indented != literal {
			literal = indented
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n"}[literal])
		}
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	if literal {
		b.WriteString(".fi\n")
	}
}

// roff is text that man(7) prints as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
