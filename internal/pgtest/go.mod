module github.com/idemd/idemd/internal/pgtest

go 1.26.0
