//! Which file is taken, and what is said of one that cannot be.

use super::*;

fn nothing(_: &str) -> Option<String> {
    None
}

/// A directory with a file `path` that sets the port.
fn put(dir: &TempDir, path: &str, port: u16) -> PathBuf {
    let path = dir.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("server.port = {port}")).unwrap();
    path
}

fn check_found(loaded: LoadedConfig, port: u16, path: &Path) {
    assert_eq!(loaded.config.server.port, port);
    assert_eq!(loaded.path.as_deref(), Some(path));
    assert_eq!(loaded.root, path.parent().unwrap());
}

#[test]
fn without_a_file_the_defaults_hold() {
    let dir = TempDir::new().unwrap();
    let loaded = load_config(None, dir.path(), &nothing).unwrap();
    assert_eq!(loaded, LoadedConfig::new(ProjectConfig::default(), None, dir.path()));
    assert!(!loaded.is_project());
    fs::create_dir(dir.path().join("tools")).unwrap();
    assert!(loaded.is_project());
}

#[test]
fn a_file_of_a_folder_above_is_found_and_the_nearest_counts() {
    let dir = TempDir::new().unwrap();
    let deep = dir.path().join("project/tools/more");
    fs::create_dir_all(&deep).unwrap();
    let outer = put(&dir, "moonlark.toml", 1);
    check_found(load_config(None, &deep, &nothing).unwrap(), 1, &outer);
    let nearer = put(&dir, "project/moonlark.toml", 2);
    check_found(load_config(None, &deep, &nothing).unwrap(), 2, &nearer);
    // Paths in messages are seen from where the user is.
    fs::write(&nearer, "x = 1").unwrap();
    let problems = load_config(None, &deep, &nothing).unwrap_err().errors;
    assert_eq!(problems[0].to_line(), "../../moonlark.toml:1:1: unknown key x");
}

#[test]
fn the_search_ends_at_the_home_folder() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("home").display().to_string();
    let env = |name: &str| (name == "HOME").then(|| home.clone());
    let deep = dir.path().join("home/project/tools");
    fs::create_dir_all(&deep).unwrap();
    put(&dir, "moonlark.toml", 1);
    assert_eq!(load_config(None, &deep, &env).unwrap().path, None);
    let own = put(&dir, "home/moonlark.toml", 2);
    check_found(load_config(None, &deep, &env).unwrap(), 2, &own);
}

#[test]
fn the_explicit_file_comes_first_then_the_local_then_the_users() {
    let dir = TempDir::new().unwrap();
    let xdg = dir.path().join("xdg").display().to_string();
    let home = dir.path().join("home").display().to_string();
    let both = |name: &str| match name {
        "XDG_CONFIG_HOME" => Some(xdg.clone()),
        "HOME" => Some(home.clone()),
        _ => None,
    };
    let only_home = |name: &str| both(name).filter(|_| name == "HOME");
    let relative = |name: &str| match name {
        "XDG_CONFIG_HOME" => Some("xdg".to_owned()),
        name => both(name),
    };

    let home_file = put(&dir, "home/.config/moonlark/moonlark.toml", 1);
    check_found(load_config(None, dir.path(), &only_home).unwrap(), 1, &home_file);
    check_found(load_config(None, dir.path(), &relative).unwrap(), 1, &home_file);
    let xdg_file = put(&dir, "xdg/moonlark/moonlark.toml", 2);
    check_found(load_config(None, dir.path(), &both).unwrap(), 2, &xdg_file);
    let local = put(&dir, "moonlark.toml", 3);
    check_found(load_config(None, dir.path(), &both).unwrap(), 3, &local);
    let explicit = put(&dir, "conf/other.toml", 4);
    let relative = Some(Path::new("conf/other.toml"));
    check_found(load_config(relative, dir.path(), &both).unwrap(), 4, &explicit);
    check_found(load_config(Some(&explicit), dir.path(), &both).unwrap(), 4, &explicit);
}

#[track_caller]
fn check_unreadable(explicit: Option<&str>, dir: &TempDir, expected: &str) {
    let problems = load_config(explicit.map(Path::new), dir.path(), &nothing).unwrap_err().errors;
    let shown: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(shown, [expected]);
}

#[test]
fn an_explicit_file_must_be_there() {
    check_unreadable(
        Some("conf/none.toml"),
        &TempDir::new().unwrap(),
        "error[bad_config]: there is no such file\n  --> conf/none.toml\nhint: check the path, and where it leads if it is a link",
    );
}

#[test]
fn a_directory_is_no_file() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join(CONFIG_FILE_NAME)).unwrap();
    for explicit in [None, Some(CONFIG_FILE_NAME)] {
        check_unreadable(
            explicit,
            &dir,
            "error[bad_config]: this is a directory, not a file\n  --> moonlark.toml\nhint: name the file in it, such as moonlark.toml",
        );
    }
}
#[test]
fn a_dangling_link_is_not_passed_over() {
    let dir = TempDir::new().unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join(CONFIG_FILE_NAME)).unwrap();
    check_unreadable(
        None,
        &dir,
        "error[bad_config]: there is no such file\n  --> moonlark.toml\nhint: check the path, and where it leads if it is a link",
    );
}

#[test]
fn a_huge_file_is_refused() {
    check_bytes(
        &vec![b'#'; 10 * 1024 * 1024],
        &["error[bad_config]: the file is larger than 1 MB
  --> moonlark.toml
hint: keep data in files of its own that a script reads"],
    );
    assert!(load_bytes(&vec![b'#'; 1024 * 1024]).is_ok());
}

#[test]
fn a_file_that_is_not_text_is_refused_at_the_first_bad_byte() {
    check_bytes(
        b"[server]\nhost = \"\xc3\xb6\xff\"",
        &["error[bad_config]: the file is not UTF-8 text
  --> moonlark.toml:2:10
hint: save it as UTF-8"],
    );
}

#[test]
fn a_link_in_place_of_the_state_folder_is_refused() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", root.path().join(".moonlark")).unwrap();
    let problem = moonlark_state::state_folder::check_state_folder(root.path()).unwrap_err();
    let rejected = load_config(None, root.path(), &nothing).unwrap_err();
    assert_eq!(rejected.errors, [problem]);
    assert_eq!(fs::read_dir(root.path().join("elsewhere")).unwrap().count(), 0);
}
